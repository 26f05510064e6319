"""Time operations: repeated calls between two synchronisations, by CUDA events where there is a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from sweep.contract import Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, Run

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def seconds_per_call(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Mean seconds of ``repeats`` consecutive calls, after one warm-up call."""
    call()
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3 / repeats


def measured_rounds(
    run: Run, progress: Progress, measure: Callable[[], list[float]]
) -> tuple[list[tuple[float, ...]], list[float]]:
    """``measure`` as often as the run has iterations: (seconds of each operation after the warm-up; of each round)."""
    rounds, lengths = [], []
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        start = time.perf_counter()
        rounds.append(measure())
        lengths.append(time.perf_counter() - start)
    return list(zip(*rounds[run.warmup_iterations :], strict=True)), lengths
