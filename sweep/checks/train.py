"""Tier ``train``: the training benchmark, tiny, on each node alone. It shows what no part alone does."""

from __future__ import annotations

from sweep.checks.check import Check
from sweep.checks.expectation import NOTHING
from sweep.checks.perf import slowest_rate
from sweep.contract import Layout, Run
from sweep.physics.catalogue import MODELS

READER = "training"
ITERATIONS = 7
"""timings; the fastest counts: other programs only make one slower"""
TRAIN: tuple[Check, ...] = (
    Check(
        name="training",
        tier="train",
        reader=READER,
        evaluate=slowest_rate("tokens/s", lambda *_: NOTHING),
        remedy="compare this node's tiers node and perf with a fast one's; its kernel log, clocks, temperature",
        source="the other nodes' median; SuperBench and Primus train tiny models per node",
        median=True,
    ),
)
"""all checks of the tier"""


def training_run(gpu: str, ranks: int) -> Run:
    """What a node trains: data parallel over its ranks, steps of tenths of a second (two periods of a CPU quota)."""
    model, length, micro_batch, accumulated, dtype = (
        ("tiny-1M", 256, 4, 4, "fp32") if gpu == "cpu" else ("Qwen3-0.6B", 4096, 1, 8, "bf16")
    )
    return Run(
        workload="transformer",
        model=model,
        shape=MODELS[model].as_dict(),
        nodes=1,
        gpus_per_node=ranks,
        sequence_length=length,
        layout=Layout(dp=ranks, micro_batch_size=micro_batch, grad_accum=accumulated),
        dtype=dtype,
        warmup_iterations=2,
        iterations=ITERATIONS,
    )
