"""A profile of one iteration, on request: a trace, a memory snapshot, and where the time went.

Never part of a timed iteration. Files go to ``profile_dir`` of the parameters, named after the run and the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from bench_workloads.transformer.cpu_memory import muted_stderr

_COMMUNICATION = ("nccl", "gloo:", "c10d::", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "sendrecv")


def profile(iteration: Callable[[], object], device: torch.device, directory: Path, name: str) -> dict[str, Any]:
    """Run one iteration under torch's profiler. Returns the split of its time and the names of the files written."""
    directory.mkdir(parents=True, exist_ok=True)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.memory._record_memory_history(max_entries=200_000)
    kinds = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if on_gpu else [])]
    watched = torch.profiler.profile(activities=kinds, record_shapes=False, with_stack=False)
    with muted_stderr():
        watched.start()
    iteration()
    if on_gpu:
        torch.cuda.synchronize(device)
    with muted_stderr():
        watched.stop()
    files = [directory / f"{name}.trace.json.gz"]
    watched.export_chrome_trace(str(files[0]))
    if on_gpu:
        files.append(directory / f"{name}.memory.pickle")
        torch.cuda.memory._dump_snapshot(str(files[1]))
        torch.cuda.memory._record_memory_history(enabled=None)
    return {"profile_files": [str(file) for file in files], **(_split(watched) if on_gpu else {})}


def _split(watched: Any) -> dict[str, float]:
    """Seconds of the GPU's timeline: computing, communicating without overlapping computation, and idle."""
    kernels = [
        (e.start_ns(), e.start_ns() + e.duration_ns(), _communicates(e.name()))
        for e in watched.profiler.kineto_results.events()
        if e.device_type() == torch.profiler.DeviceType.CUDA
    ]
    if not kernels:
        return {}
    computing = covered((a, b) for a, b, communicates in kernels if not communicates)
    busy = covered((a, b) for a, b, _ in kernels)
    whole = max(b for _, b, _ in kernels) - min(a for a, _, _ in kernels)
    return {
        "profile_compute_s": computing / 1e9,
        "profile_exposed_communication_s": (busy - computing) / 1e9,
        "profile_idle_s": (whole - busy) / 1e9,
    }


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """The total length of the spans' union.

    >>> covered([(0, 4), (2, 6), (8, 9)])
    7
    """
    total, end = 0, None
    for start, stop in sorted(spans):
        begin = start if end is None else max(start, end)
        total += max(0, stop - begin)
        end = stop if end is None else max(end, stop)
    return total


def _communicates(name: str) -> bool:
    lower = name.lower()
    return any(word in lower for word in _COMMUNICATION)
