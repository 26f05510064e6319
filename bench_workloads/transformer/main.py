"""The entry point: one readable path from a placed run to its measurement."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

import torch

from bench_workloads.transformer import measure, process
from bench_workloads.transformer.build import Trainer
from bench_workloads.transformer.effective import Observer, effective_configuration
from bench_workloads.transformer.memory import Memory
from bench_workloads.transformer.settings import Settings
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun


def main(run: RankRun, progress: Progress) -> None:
    """Build, warm up, measure, tell, tear down. Called in a process of its own, one per rank."""
    settings = Settings.of(run)
    progress.measured(_measure(run, settings, progress))
    progress.beat(Phase.FINISH)
    process.leave(settings.teardown_timeout_s)


def _measure(run: RankRun, settings: Settings, progress: Progress) -> Measurement:
    """All that refers to the model lives in this frame, and dies with it, before the process group does."""
    clock = _Stopwatch(progress)
    threads = process.set_threads(run.place, settings.threads)
    device = process.pick_device(run.place)
    process.join(run.place, device, settings.process_group_timeout_s)
    clock.lap("rendezvous")
    trainer = Trainer(run, settings, device)
    measure.synchronise(device)
    clock.lap("build")

    warm = measure.run_iterations(trainer, progress, device, first=0, count=run.warmup_iterations)
    measure.quiet_collector()
    clock.lap("warmup")

    memory = Memory(device)
    with Observer(trainer) as observer:
        timed = measure.run_iterations(trainer, progress, device, first=run.warmup_iterations, count=run.iterations)
    clock.lap("measure")
    return Measurement(
        step_times_s=timed.step_s,
        warmup_times_s=warm.step_s,
        peak_allocated_bytes=memory.peak_allocated_bytes(),
        peak_reserved_bytes=memory.peak_reserved_bytes(),
        losses=warm.losses + timed.losses,
        grad_norms=warm.grad_norms + timed.grad_norms,
        parameters=sum(p.numel() for p in trainer.optimizer.shards()),
        device=_device_name(device),
        versions=_versions(),
        phases_s=clock.laps,
        effective=effective_configuration(trainer, observer),
        extra={
            "forward_backward_times_s": timed.forward_backward_s,
            "device_times_s": timed.device_s or None,
            "threads": threads,
            **memory.extra(),
        },
    )


class _Stopwatch:
    """Seconds per part of the start, and a beat at the end of each."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last = time.perf_counter()
        self.laps: dict[str, float] = {}
        progress.beat(Phase.START)

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
        if name in ("rendezvous", "build"):
            self._progress.beat(Phase.START)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.cuda.is_available():
        found["cuda"] = str(torch.version.cuda)
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["driver"] = _driver_version()
    return found


def _driver_version() -> str:
    return str(getattr(torch.cuda, "driver_version", lambda: "unknown")())
