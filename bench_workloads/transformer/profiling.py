"""A profile of one iteration, on request: a trace and a memory snapshot.

Never part of a timed iteration, and after the measurement is sent: its export may take long. Files go to
``profile_dir`` of the parameters, named after the run and the rank.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bench_workloads.transformer.memory import muted_stderr

if TYPE_CHECKING:
    from sweep.contract import RankRun

EXPORT_S = 600.0
"""the next heartbeat comes within this: a trace of a large step takes minutes to export"""


def files(run: RankRun, directory: str, device: torch.device) -> list[Path]:
    """All that will be written, named after the run and the rank: the trace, and on a GPU the memory snapshot.

    In the directory, or where it is empty in the attempt's own scratch directory.
    """
    endings = ["trace.json.gz", *(["memory.pickle"] if device.type == "cuda" else [])]
    place = Path(directory or run.place.scratch_dir or ".")
    return [place / f"{run.run_id}.rank{run.place.rank}.{ending}" for ending in endings]


def profile(iteration: Callable[[], object], device: torch.device, trace: Path, *snapshot: Path) -> None:
    """Run one iteration under torch's profiler, and write the ``files``."""
    trace.parent.mkdir(parents=True, exist_ok=True)
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
    watched.export_chrome_trace(str(trace))
    for path in snapshot:
        torch.cuda.memory._dump_snapshot(str(path))
        torch.cuda.memory._record_memory_history(enabled=None)
