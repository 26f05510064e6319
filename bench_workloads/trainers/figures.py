"""The trainer's own figures beside ours, from the same step times.

A disagreement shows a wrong reading, or another way to count.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bench_workloads.trainers.gathering import Gathered
from sweep.contract import Run
from sweep.physics import flops, shapes

TOLERANCE = 0.02
"""relative difference from which on it is told"""


def compare(run: Run, gathered: Gathered, convention: str) -> dict[str, Any]:
    """The trainer's own medians (``reported``), the same from its step times (``ours``), and where they differ."""
    median = statistics.median(gathered.timed_s())
    ours = _ours(run, median, convention)
    names = (
        "step_time_s",
        "tokens_per_second",
        "tokens_per_second_per_gpu",
        "samples_per_second",
        "tflops_per_gpu",
        "mfu",
    )
    reported = {name: value for name in names if (value := gathered.median(name)) is not None}
    disagreements = [
        f"{name}: the trainer says {reported[name]:.6g}, its steps make {ours[name]:.6g}"
        for name in reported
        if name in ours and _differ(reported[name], ours[name])
    ]
    wall_s = gathered.wall_s()
    if wall_s is not None and _differ(wall_s, mean := statistics.fmean(gathered.timed_s())):
        disagreements.append(f"step_time_s: the trainer's mean is {mean:.6g}, its lines came every {wall_s:.6g}")
    return {
        "wall_s_per_iteration": wall_s,
        "reported": reported,
        "ours": {name: ours[name] for name in reported if name in ours},
        "disagreements": disagreements,
        "printed_every": gathered.printed_every,
    }


def notes(compared: Mapping[str, Any], gathered: Gathered) -> list[str]:
    """What is odd about a measurement, in words."""
    return [*compared["disagreements"], *skipped(gathered)]


def skipped(gathered: Gathered) -> list[str]:
    """Timed iterations of forward and backward pass only: fp16's gradients overflowed."""
    count = gathered.skipped()
    if not count:
        return []
    return [
        f"{count} of {gathered.iterations} timed iterations skipped the optimizer's step, as gradients overflowed: "
        "more warmup_iterations let the loss scale settle"
    ]


def _ours(run: Run, median_s: float, convention: str) -> dict[str, float]:
    rate = run.global_batch_tokens / median_s
    found = {
        "step_time_s": median_s,
        "tokens_per_second": rate,
        "tokens_per_second_per_gpu": rate / run.gpus,
        "samples_per_second": rate / run.sequence_length,
    }
    if run.shape and convention:
        shape = shapes.ModelShape(**run.shape)  # type: ignore[arg-type]
        counted = flops.CONVENTIONS[convention]
        per_token = flops.model_flops_per_token(shape, run.sequence_length, counted)
        found["tflops_per_gpu"] = rate / run.gpus * per_token / 1e12
    return found


def _differ(a: float, b: float) -> bool:
    return abs(a - b) > TOLERANCE * max(abs(a), abs(b))
