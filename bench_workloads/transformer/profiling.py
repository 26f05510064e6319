"""A profile of one iteration, on request: a trace and a memory snapshot.

Never part of a timed iteration, and after the measurement is sent: its export may take long. Files go to
``profile_dir`` of the parameters, named after the run and the rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bench_workloads.transformer.memory import muted_stderr

if TYPE_CHECKING:
    from sweep.contract import RankRun

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
        """All that will be written: the trace, and on a GPU the memory snapshot."""
        endings = ["trace.json.gz", *(["memory.pickle"] if device.type == "cuda" else [])]
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
