"""Tables of published data, from the folder that SWEEP_REFERENCE_DATA names; a test that asks is skipped without."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape

LAYOUT = ("dp", "tp", "pp", "micro_batch_size", "grad_accum")


def table(name: str) -> Path:
    if "SWEEP_REFERENCE_DATA" not in os.environ:
        pytest.skip("SWEEP_REFERENCE_DATA is not set")
    return Path(os.environ["SWEEP_REFERENCE_DATA"]) / name


def rows(name):
    with table(name).open() as file:
        return list(csv.DictReader(file))


def column(found, name, kind=float):
    return np.array([kind(row[name]) for row in found])


def playbook(found):
    columns = {name: column(found, name) for name in LAYOUT}
    columns |= {"zero": column(found, "zero_stage"), "sequence_length": column(found, "seq_len"), "gpus_per_node": 8}
    shapes = [MODELS[row["model_label"]].as_dict() for row in found]
    return columns | {name: np.array([shape[name] for shape in shapes]) for name in shapes[0]}


_LLAMA4 = {"num_layers": 48, "hidden_size": 5120, "num_heads": 40, "num_kv_heads": 8, "vocab_size": 202048}
_LLAMA4 |= {"intermediate_size": 16384, "moe_intermediate_size": 8192, "shared_experts": 1, "experts_per_token": 1}
RECOMMENDED = {
    ("llama3", "8b"): MODELS["Llama-3-8B"],
    ("llama3", "70b"): MODELS["Llama-3-70B"],
    ("llama31", "405b"): MODELS["Llama-3.1-405B"],
    ("mixtral", "8x7b"): MODELS["Mixtral-8x7B"],
    ("mixtral", "8x22b"): MODELS["Mixtral-8x22B"],
    ("gpt3", "175b"): MODELS["GPT3-175B"],
    ("nemotron3", "8b"): MODELS["Nemotron-8B"],
    ("nemotron3", "22b"): MODELS["Nemotron-22B"],
    ("nemotron4", "15b"): MODELS["Nemotron-15B"],
    ("nemotron4", "340b"): MODELS["Nemotron-340B"],
    ("deepseek", "v3"): MODELS["DeepSeek-V3"],
    ("llama4", "e16"): ModelShape(**_LLAMA4, num_experts=16),
    ("llama4", "e128"): ModelShape(**_LLAMA4, num_experts=64),  # 128 in every other layer: as many as 64 in each
    ("qwen3", "30b_a3b"): MODELS["Qwen3-30B-A3B"],
    ("qwen3", "235b_a22b"): MODELS["Qwen3-235B-A22B"],
}
"""the models of nemo_recommended_configs.csv"""
