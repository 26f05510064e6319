"""Tables of published data, from the folder that SWEEP_REFERENCE_DATA names."""

import csv
import os
from pathlib import Path

import numpy as np

from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape

REFERENCE = os.environ.get("SWEEP_REFERENCE_DATA")


LAYOUT = ("dp", "tp", "pp", "micro_batch_size", "grad_accum")


def rows(name):
    with (Path(REFERENCE) / name).open() as file:
        return list(csv.DictReader(file))


def column(found, name, kind=float):
    return np.array([kind(row[name]) for row in found])


def playbook(found):
    columns = {name: column(found, name) for name in LAYOUT}
    columns |= {"zero": column(found, "zero_stage"), "sequence_length": column(found, "seq_len"), "gpus_per_node": 8}
    shapes = [MODELS[row["model_label"]].as_dict() for row in found]
    return columns | {name: np.array([shape[name] for shape in shapes]) for name in shapes[0]}


SIZES = ("num_layers", "hidden_size", "num_heads", "num_kv_heads", "intermediate_size", "vocab_size")
EXPERTS = ("num_experts", "experts_per_token", "moe_intermediate_size", "shared_experts", "dense_layers")


def decoder(*sizes, plain=False, **experts):
    """Public configurations. ``plain``: an MLP of two matrices."""
    return ModelShape(**dict(zip(SIZES, sizes, strict=True)), gated_mlp=not plain, **experts)


def routed(*sizes):
    return dict(zip(EXPERTS, sizes, strict=False))


RECOMMENDED = {
    ("llama3", "8b"): MODELS["Llama-3-8B"],
    ("llama3", "70b"): MODELS["Llama-3-70B"],
    ("llama31", "405b"): MODELS["Llama-3.1-405B"],
    ("mixtral", "8x7b"): MODELS["Mixtral-8x7B"],
    ("mixtral", "8x22b"): MODELS["Mixtral-8x22B"],
    ("gpt3", "175b"): decoder(96, 12288, 96, 96, 49152, 51200, plain=True, tied_embeddings=True),
    ("nemotron3", "8b"): decoder(32, 4096, 32, 32, 16384, 256000, plain=True),
    ("nemotron3", "22b"): decoder(40, 6144, 48, 48, 24576, 256000, plain=True),
    ("nemotron4", "15b"): decoder(32, 6144, 48, 8, 24576, 256000, plain=True),
    ("nemotron4", "340b"): decoder(96, 18432, 96, 8, 73728, 256000, plain=True),
    # Latent attention: as many parameters as 8 kv heads give it.
    ("deepseek", "v3"): decoder(61, 7168, 128, 8, 18432, 129280, head_dim=128, **routed(256, 8, 2048, 1, 3)),
    ("llama4", "e16"): decoder(48, 5120, 40, 8, 16384, 202048, **routed(16, 1, 8192, 1)),
    # 128 experts in every other layer: as many as 64 in each.
    ("llama4", "e128"): decoder(48, 5120, 40, 8, 16384, 202048, **routed(64, 1, 8192, 1)),
    ("qwen3", "30b_a3b"): decoder(48, 2048, 32, 4, 6144, 151936, head_dim=128, **routed(128, 8, 768)),
    ("qwen3", "235b_a22b"): decoder(94, 4096, 64, 4, 12288, 151936, head_dim=128, **routed(128, 8, 1536)),
}
"""the models of nemo_recommended_configs.csv"""
