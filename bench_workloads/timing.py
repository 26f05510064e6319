"""Time one operation: repeated calls between two synchronisations, by CUDA events where there is a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


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
