"""A workload whose rank fails on its device for real. Registered by an entry point while the acceptance runs.

On a CPU, for the rehearsal, the nearest real failure: torch's own out-of-memory exception, a null pointer, a call that
never returns.
"""

from __future__ import annotations

import ctypes
import time

from bench_workloads import process
from sweep.contract import Measurement, Phase, Progress, RankRun, Workload

FAULTS = {"oom": "oom_cuda", "assert": "cuda_error", "hang": "hang"}
"""fault -> the outcome that names it"""
ENTRY_POINT = "gpu-acceptance-faulty = benchmarks.gpu_acceptance.faulty:WORKLOAD"
WORKLOAD = Workload(
    name="gpu-acceptance-faulty",
    main="benchmarks.gpu_acceptance.faulty:main",
    axes=frozenset(),
    preload=("torch", "benchmarks.gpu_acceptance.faulty"),
    params={"fault": ""},
    choices={"fault": ("", *FAULTS)},
)


def main(run: RankRun, progress: Progress) -> None:
    """Two steps, then the fault; without one, a measurement."""
    import torch

    device = process.pick_device(run.place)
    matrix = torch.randn(256, 256, device=device)
    times = []
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        begun = time.perf_counter()
        (matrix @ matrix).sum().item()
        if number == 2:
            _fail(str(run.params.get("fault", "")), device)
        times.append(time.perf_counter() - begun)
    progress.measured(Measurement(step_times_s=times[run.warmup_iterations :], device="acceptance"))


def _fail(fault: str, device: object) -> None:
    import torch

    on_gpu = getattr(device, "type", "") == "cuda"
    if fault == "oom":
        if not on_gpu:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB (rehearsed)")
        held = []
        while True:
            held.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))
    if fault == "assert":
        if not on_gpu:
            raise RuntimeError("CUDA error: device-side assert triggered (rehearsed)")
        torch.zeros(4, device="cuda")[torch.tensor([7], device="cuda")].sum().item()
    if fault == "hang":
        if on_gpu:
            torch.cuda._sleep(1 << 62)  # one kernel that spins for centuries
            torch.cuda.synchronize()
        while True:  # a signal ends one pause
            ctypes.CDLL(None).pause()
