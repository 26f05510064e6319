"""The gate: predicted step times of about 40 layouts may not change silently.

After a change that is meant to change them: ``make accept-anchors``, and the table of accuracy before and after, which
it prints, goes into the commit's message.
"""

import csv
import os
from pathlib import Path

import pytest

from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.prediction import Posterior, describe
from sweep.physics.profiles import PROFILES

FILE = Path(__file__).parent / "anchors.csv"
BASE = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "grad_accum": 8, "dp": 8}
LAYOUTS = {
    "data parallel": {},
    "one GPU": {"dp": 1},
    "zero 1, 8 nodes": {"dp": 64, "zero": 1},
    "zero 3, 8 nodes": {"dp": 64, "zero": 3, "grad_accum": 1},
    "tensor 8": {"dp": 2, "tp": 8},
    "tensor 16 across nodes": {"dp": 2, "tp": 16},
    "pipeline 4": {"dp": 2, "pp": 4, "grad_accum": 16},
    "interleaved": {"dp": 2, "pp": 4, "grad_accum": 16, "pp_schedule": "interleaved_1f1b", "virtual_stages": 2},
    "everything recomputed": {"recompute": "full", "micro_batch_size": 4},
    "long, context 4": {"dp": 4, "cp": 4, "sequence_length": 131072, "grad_accum": 1, "recompute": "full"},
}
KINDS = {
    "nanotron": ("8B", "h100"),
    "megatron": ("Llama-3-8B", "a100"),
    "torchtitan": ("Llama-3-70B", "h100"),
    "ours": ("1B", "h200"),
}
OTHERS = {
    "megatron Mixtral-8x7B h100, experts 8": ("megatron", "Mixtral-8x7B", "h100", {"ep": 8, "zero": 1}),
    "megatron 8B b200, fp8": ("megatron", "8B", "b200", {"dtype": "fp8", "zero": 1}),
    "torchtitan Llama-3-8B h100, compiled": ("torchtitan", "Llama-3-8B", "h100", {"compile": True, "zero": 3}),
    "megatron 8B unknown GPU": ("megatron", "8B", "cpu", {}),
}
ANCHORS = OTHERS | {
    f"{trainer} {model} {gpu}, {name}": (trainer, model, gpu, layout)
    for trainer, (model, gpu) in KINDS.items()
    for name, layout in LAYOUTS.items()
}


def predicted(name):
    trainer, model, gpu, layout = ANCHORS[name]
    columns = MODELS[model].as_dict() | BASE | layout
    median, sd = Posterior().log_seconds(describe(columns, GPUS[gpu], PROFILES[trainer]))
    return f"{median[0]:.4f}", f"{sd[0]:.3f}"


def accepted():
    with FILE.open() as file:
        return {row["layout"]: (row["log_seconds"], row["spread"]) for row in csv.DictReader(file)}


@pytest.mark.skipif(os.environ.get("SWEEP_UPDATE_GOLDENS") != "1", reason="changes the file: make accept-anchors")
def test_accept():
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("layout", "log_seconds", "spread"))
        writer.writerows((name, *predicted(name)) for name in sorted(ANCHORS))


def test_there_are_enough_anchors_and_each_is_accepted():
    assert len(ANCHORS) >= 40
    assert set(accepted()) == set(ANCHORS)


@pytest.mark.parametrize("name", sorted(ANCHORS))
def test_a_prediction_is_the_accepted_one(name):
    assert predicted(name) == accepted()[name], "meant? then make accept-anchors, with the accuracy before and after"
