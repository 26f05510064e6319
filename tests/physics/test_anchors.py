"""The gate: predicted step times and memory of about 80 layouts may not change silently, part by part.

After a change that is meant to change them: ``make accept-anchors``, and the table of accuracy before and after, which
it prints, goes into the commit's message.
"""

import csv
import os
from pathlib import Path

import pytest

from sweep.physics import memory
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.pipeline import STAGES
from sweep.physics.prediction import describe
from sweep.physics.profiles import PROFILES, profile_of
from sweep.physics.step_time import predict

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
PIPED = {"dp": 2, "pp": 4, "grad_accum": 16}
OTHERS = {
    "megatron Mixtral-8x7B h100, experts 8": ("megatron", "Mixtral-8x7B", "h100", {"ep": 8, "zero": 1}),
    "megatron 8B b200, fp8": ("megatron", "8B", "b200", {"dtype": "fp8", "zero": 1}),
    "torchtitan Llama-3-8B h100, compiled": ("torchtitan", "Llama-3-8B", "h100", {"compile": True, "zero": 3}),
    "megatron 8B unknown GPU": ("megatron", "8B", "cpu", {}),
    # Experts: across nodes, under a pipeline, with a width of tensor parallelism of their own
    "megatron Qwen3-30B-A3B h200, experts 16": ("megatron", "Qwen3-30B-A3B", "h200", {"dp": 32, "ep": 16, "zero": 1}),
    "ours tiny-moe a100, experts 4, recomputed": (
        "ours", "tiny-moe", "a100", {"ep": 4, "tp": 2, "recompute": "full", "micro_batch_size": 8}
    ),
    "megatron DeepSeek-V3 h800, etp 1": (
        "megatron", "DeepSeek-V3", "h800", {**PIPED, "dp": 64, "ep": 32, "tp": 2, "etp": 1, "zero": 2}
    ),
    "ours tiny-moe h100, zero 3": ("ours", "tiny-moe", "h100", {"ep": 2, "tp": 4, "zero": 3, "recompute": "selective"}),
    # Schedules
    **{
        f"ours 8B h100, {schedule}": ("ours", "8B", "h100", {**PIPED, "pp_schedule": schedule, "zero": 1})
        for schedule in ("gpipe", "looped_bfs", "interleaved_zero_bubble", "zbv_zero_bubble", "dualpipev")
    },
    "ours 1B h100, tied, two stages": ("ours", "1B", "h100", {"pp": 2, "dp": 4, "micro_batch_size": 2}),
    "megatron 1B h100, tied, 8 nodes": ("megatron", "1B", "h100", {"dp": 8, "pp": 8, "tp": 2, "zero": 1}),
    "nanotron 1B h100, more stages than layers": ("nanotron", "1B", "h100", {"dp": 4, "pp": 16, "grad_accum": 32}),
    "ours 8B h100, stated layers": ("ours", "8B", "h100", {**PIPED, "pp_layers": "9,9,8,6"}),
    # Numbers of fewer and of more bits
    **{
        f"{trainer} 1B {gpu}, {dtype}": (trainer, "1B", gpu, {"dtype": dtype, "zero": zero, "dp": dp})
        for trainer, gpu, dtype, zero, dp in (
            ("ours", "a100", "fp32", 0, 1), ("ours", "a100", "fp32", 3, 8), ("ours", "h100", "tf32", 2, 8),
            ("megatron", "v100", "fp16", 1, 8), ("megatron", "h100", "fp32", 1, 8), ("torchtitan", "b200", "fp4", 2, 8),
        )
    },
    # Trainers' own ways
    "torchtitan 8B h100, zero 2, selective": (
        "torchtitan", "8B", "h100", {"zero": 2, "tp": 2, "recompute": "selective"}
    ),
    "torchtitan 8B h100, zero 3, pipeline": ("torchtitan", "8B", "h100", {**PIPED, "zero": 3}),
    "torchtitan 8B h100, one micro-batch": ("torchtitan", "8B", "h100", {"zero": 1, "grad_accum": 1}),
    "megatron 8B h100, selective": ("megatron", "8B", "h100", {"tp": 4, "recompute": "selective"}),
    "megatron 8B h100, a third recomputed": ("megatron", "8B", "h100", {"recompute": "full", "recompute_share": 1 / 3}),
    "megatron 8B h100, nothing overlaps": ("megatron", "8B", "h100", {"dp": 64, "zero": 1, "dp_overlap": 0}),
    "megatron 8B h100, stated network": ("megatron", "8B", "h100", {"dp": 64, "network_bytes_per_s": 1e10}),
    "megatron 70B b200, context 16": ("megatron", "70B", "b200", {"cp": 16, "tp": 4, "sequence_length": 65536}),
    "ours 8B h100, context 4, zero 3": ("ours", "8B", "h100", {"cp": 4, "dp": 2, "zero": 3, "sequence_length": 32768}),
    "nanotron 8B h100, zero 1, pipeline on 8 nodes": ("nanotron", "8B", "h100", {**PIPED, "dp": 16, "zero": 1}),
    "picotron 1B h100": ("picotron", "1B", "h100", {"tp": 2, "pp": 2}),
    "picotron 1B h100, alone": ("picotron", "1B", "h100", {"dp": 1}),
    "deepspeed 8B a100, zero 2": ("deepspeed", "8B", "a100", {"zero": 2}),
    "deepspeed 8B a100, zero 3": ("deepspeed", "8B", "a100", {"zero": 3}),
    "paper 8B a100, recomputed attention": ("paper", "8B", "a100", {"tp": 4, "recompute": "selective"}),
    "paper 8B a100": ("paper", "8B", "a100", {"tp": 2, "zero": 1}),
    "megatron Gemma-2B l40s, one kv head": ("megatron", "Gemma-2B", "l40s", {"tp": 8, "compile": True}),
    "ours GPT-OSS-20B b200": ("ours", "GPT-OSS-20B", "b200", {"ep": 8, "zero": 3}),
    "ours tiny-1M h100, launches": ("ours", "tiny-1M", "h100", {"tp": 2, "sequence_length": 64}),
    **{
        f"{trainer} tiny-1M h100, launches": (trainer, "tiny-1M", "h100", {"tp": 2, "zero": 1, "sequence_length": 64})
        for trainer in ("nanotron", "megatron", "torchtitan", "deepspeed", "picotron")
    },
}  # fmt: skip
ANCHORS = OTHERS | {
    f"{trainer} {model} {gpu}, {name}": (trainer, model, gpu, layout)
    for trainer, (model, gpu) in KINDS.items()
    for name, layout in LAYOUTS.items()
}


def predicted(name):
    """The logarithm of the step's seconds and its spread, milliseconds of each part, MiB of each stage's rank."""
    trainer, model, gpu, layout = ANCHORS[name]
    columns, profile = MODELS[model].as_dict() | BASE | layout, PROFILES[trainer]
    if layout.get("compile"):
        profile = profile_of(trainer, {}, compiled=True) or profile
    found = describe(columns, GPUS[gpu], profile)
    median, sd = found.log_median, found.prior_sd
    parts = {f"{part}_ms": 1e3 * seconds for part, seconds in predict(columns, GPUS[gpu], profile).by_part().items()}
    bytes_ = {f"{stage}_mib": memory.stage_totals(columns, profile)[stage] / 2**20 for stage in STAGES}
    found = {"log_seconds": median[0], "spread": sd[0]} | parts | bytes_
    return {column: float(f"{float(value):.6g}") for column, value in found.items()}


def accepted():
    with FILE.open() as file:
        rows = {row.pop("layout"): row for row in csv.DictReader(file)}
    return {name: {column: float(text) for column, text in row.items()} for name, row in rows.items()}


@pytest.mark.skipif(os.environ.get("SWEEP_UPDATE_GOLDENS") != "1", reason="changes the file: make accept-anchors")
def test_accept():
    found = {name: predicted(name) for name in sorted(ANCHORS)}
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["layout", *next(iter(found.values()))], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"layout": name} | row for name, row in found.items())


def test_there_are_enough_anchors_and_each_is_accepted():
    assert len(ANCHORS) >= 80
    assert set(accepted()) == set(ANCHORS)


@pytest.mark.parametrize("name", sorted(ANCHORS))
def test_a_prediction_is_the_accepted_one(name):
    wanted = pytest.approx(accepted()[name], rel=2e-6, abs=1e-9)
    assert predicted(name) == wanted, "meant? then make accept-anchors, with the accuracy before and after"
