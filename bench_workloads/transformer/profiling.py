"""A profile of one iteration, on request: a trace, a memory snapshot, and where the time went.

Never part of a timed iteration, and after the measurement is sent: its export may take long. Files go to
``profile_dir`` of the parameters, named after the run and the rank.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bench_workloads.transformer.memory import muted_stderr

if TYPE_CHECKING:
    from sweep.contract import RankRun

_COMMUNICATION = ("nccl", "gloo:", "c10d::", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "sendrecv")


EXPORT_S = 600.0
"""the next heartbeat comes within this: a trace of a large step takes minutes to export"""


@dataclass(frozen=True)
class Files:
    """Where one rank's profile goes."""

    directory: Path
    name: str

    @classmethod
    def of(cls, run: RankRun, directory: str) -> Files:
        """In the directory, or the attempt's own scratch directory, under the run's and the rank's name."""
        return cls(Path(directory or run.place.scratch_dir or "."), f"{run.run_id}.rank{run.place.rank}")

    def path(self, ending: str) -> Path:
        """The file with that ending."""
        return self.directory / f"{self.name}.{ending}"

    def names(self, device: torch.device) -> list[str]:
        """All that will be written: the trace, and on a GPU the memory snapshot and how its time was spent."""
        endings = ["trace.json.gz", *(["memory.pickle", "split.json"] if device.type == "cuda" else [])]
        return [str(self.path(ending)) for ending in endings]


def profile(iteration: Callable[[], object], device: torch.device, files: Files) -> None:
    """Run one iteration under torch's profiler, and write the files."""
    files.directory.mkdir(parents=True, exist_ok=True)
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
    watched.export_chrome_trace(str(files.path("trace.json.gz")))
    if on_gpu:
        torch.cuda.memory._dump_snapshot(str(files.path("memory.pickle")))
        torch.cuda.memory._record_memory_history(enabled=None)
        files.path("split.json").write_text(json.dumps(split(watched.profiler.kineto_results.events())))


def split(events: Iterable[Any]) -> dict[str, float]:
    """Seconds of the GPU's timeline: computing, communicating without overlapping computation, and idle.

    Annotations (FSDP's names of its phases) lie on the GPU's timeline too, around the kernels: they do not count.
    """
    kernels = [
        (e.start_ns(), e.start_ns() + e.duration_ns(), _communicates(e.name()))
        for e in events
        if e.device_type() == torch.profiler.DeviceType.CUDA and not e.is_user_annotation()
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
