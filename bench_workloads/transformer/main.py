"""The entry point: one readable path from a placed run to its measurement."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch.distributed as dist

from bench_workloads import hardware, process
from bench_workloads.transformer import compiling, profiling, waiting
from bench_workloads.transformer.build import Trainer
from bench_workloads.transformer.effective import Observer, effective_configuration
from bench_workloads.transformer.flops import ExecutedFlops, global_counts
from bench_workloads.transformer.measure import (
    BUSY_SHARE,
    MOST_STEPS,
    Samples,
    Stopwatch,
    has_lost,
    quiet_collector,
    steps_that_keep_busy,
    synchronise,
)
from bench_workloads.transformer.memory import Memory
from bench_workloads.transformer.settings import Settings
from bench_workloads.transformer.shared_code import SharedCode
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    import torch

    from sweep.contract import Progress, RankRun


def main(run: RankRun, progress: Progress) -> None:
    """Build, warm up, measure, report, tear down. Called in a separate process per rank."""
    quiet_collector()
    settings = Settings.of(run)
    _measure(run, settings, progress)
    progress.heartbeat(Phase.FINISH)
    if run.compile and run.place.rank == 0:
        SharedCode(run.place, process.pick_device(run.place)).share()
    process.leave()


def _measure(run: RankRun, settings: Settings, progress: Progress) -> None:
    """All that refers to the model is local to this frame, and is freed with it, before the process group."""
    laps = _Laps(progress)
    allocator = process.grow_segments()
    device = process.pick_device(run.place)
    bound = hardware.bind_to_near_cores(device, run.place)
    threads = process.set_threads(run.place, settings.threads, own_cores=bound is not None and device.type == "cpu")
    layers = int(run.shape["num_layers"] or 0)
    most_steps = settings.steps_per_sync or MOST_STEPS
    waiting.prepare(device, most_steps * waiting.most_collectives(run.layout, layers))
    laps.end("device")
    process.join(run.place, device, settings.process_group_timeout_s)
    laps.end("rendezvous")
    trainer = Trainer(run, settings, device)
    process.limit_groups(settings.process_group_timeout_s)
    _install_straggler(trainer)
    synchronise(device)
    laps.end("build")

    warmup, counts = _warm_up(trainer, progress, device)
    laps.end("warmup")
    timed = _time(trainer, progress, device, warmup)
    laps.end("measure")
    number = len(warmup.losses) + len(timed.samples.losses)
    untimed = partial(Stopwatch(trainer, progress, device).iteration, number, Samples())
    progress.heartbeat(Phase.STEADY, number)
    lost = has_lost(run.place.bound, warmup, timed.samples)
    allocated, reserved, kind = timed.memory.peaks(untimed, settings.cpu_memory and not lost)
    profiles = profiling.files(run, settings.profile_dir, device) if settings.profile and not lost else []
    saved = {} if settings.checkpoint == "none" or lost else _checkpoint(trainer, progress, number, timed)
    kept, before = (timed.samples, warmup.step_s) if timed.samples.step_s else (warmup.last(), warmup.step_s[:-1])
    measurement = Measurement(
        step_times_s=kept.step_s,
        warmup_times_s=before,
        stopped=len(timed.samples.step_s) if lost else None,
        peak_allocated_bytes=allocated,
        peak_reserved_bytes=reserved,
        memory_kind=kind,
        losses=warmup.losses + timed.samples.losses,
        grad_norms=warmup.grad_norms + timed.samples.grad_norms,
        parameters=sum(p.numel() for p in trainer.optimizer.shards()),
        device=hardware.name(device),
        versions=hardware.versions(device),
        phases_s=laps.seconds,
        effective=effective_configuration(trainer, timed.observer, len(timed.samples.losses)),
        extra={
            "threads": threads,
            "cores": bound,
            "allocator_configuration": allocator,
            **counts,
            **_further(timed._replace(samples=kept)),
            **timed.memory.further(),
            **(timed.hardware | saved),
            **({"profile_files": list(map(str, profiles))} if profiles else {}),
        },
    )
    progress.measured(measurement)
    if profiles:
        progress.heartbeat(Phase.FINISH, due_s=profiling.EXPORT_S)
        profiling.profile(untimed, device, *profiles)


def _install_straggler(trainer: Trainer) -> None:
    """Let the requested rank sleep within its steps, as a slow GPU would: in all, or in the requested iteration."""
    settings = trainer.settings
    if settings.straggler_rank != trainer.run.place.rank:
        return
    compute, count = trainer.compute_gradients, 0

    def late(*args: Any) -> Any:
        nonlocal count
        if settings.straggler_iteration in (-1, count):
            time.sleep(settings.straggler_s)
        count += 1
        return compute(*args)

    trainer.compute_gradients = late  # type: ignore[method-assign, assignment]


def _warm_up(trainer: Trainer, progress: Progress, device: torch.device) -> tuple[Samples, dict[str, int]]:
    """The untimed iterations. The last of several also counts FLOPs, where that does not undo a compilation.

    Returns them and counts: of FLOPs, or of the graphs that were compiled.
    """
    if trainer.run.compile:  # lay what earlier pilots compiled into this node's caches, before its ranks look there
        if trainer.run.place.local_rank == 0:
            SharedCode(trainer.run.place, device).fetch()
        dist.barrier()
    stopwatch, count = Stopwatch(trainer, progress, device), trainer.run.warmup_iterations
    counted = trainer.settings.count_flops and count > 1 and not trainer.run.compile
    lost = partial(has_lost, trainer.run.place.bound, timed=Samples())
    enough_s = trainer.settings.warmup_seconds  # of the steps after the first, which compiles; the same on every rank
    samples = stopwatch.run(0, count - counted, lambda done: sum(done.slowest_s[1:]) < enough_s, lost)
    if not counted or lost(samples):
        return samples, {"graphs_compiled": compiling.graphs_compiled()} if trainer.run.compile else {}
    number = len(samples.losses)
    progress.heartbeat(Phase.STEADY, number)
    with ExecutedFlops() as counter:
        stopwatch.iteration(number, samples)
    return samples, global_counts(counter, device)


class _Timed(NamedTuple):
    """The timed iterations, and their instrumentation."""

    samples: Samples
    observer: Observer
    memory: Memory
    hardware: dict[str, Any]
    """the GPU's and the host's state during and right after them"""
    steps: int
    """of each iteration"""


def _time(trainer: Trainer, progress: Progress, device: torch.device, warmup: Samples) -> _Timed:
    """The iterations after the warm-up."""
    run, settings = trainer.run, trainer.settings
    steps = settings.steps_per_sync
    if not steps:
        steps = steps_that_keep_busy(warmup.slowest_s[-1]) if device.type == "cuda" and warmup.slowest_s else 1
    memory, observer, sampler = Memory(device), Observer(trainer), hardware.Sampler(device)
    with ExitStack() as stack:
        watched = stack.enter_context(waiting.collective_time(device))
        stack.enter_context(observer)
        stack.enter_context(sampler)
        stopwatch = Stopwatch(trainer, progress, device, watched, steps, sampler.step)
        lost = partial(has_lost, run.place.bound, warmup)
        samples = stopwatch.run(len(warmup.losses), run.iterations, lost=lost)
    gpu = hardware.state(device) | sampler.results(run.global_batch_tokens * len(samples.losses) // run.gpus)
    memory.stop()
    share = samples.busy_share(steps)
    if device.type == "cuda" and share is not None and share < BUSY_SHARE:
        note = f"the GPU was busy for {share:.0%} of the time only: its clocks may be higher than in training"
        gpu["notes"] = [*gpu.get("notes", []), f"{note} (params: steps_per_sync, here {steps})"]
    return _Timed(samples, observer, memory, gpu, steps)


def _checkpoint(trainer: Trainer, progress: Progress, number: int, timed: _Timed) -> dict[str, Any]:
    """What a checkpoint costs. ``number``: of the last iteration."""
    from bench_workloads.transformer import checkpoint_cost  # a second of imports

    step_s = statistics.median(timed.samples.slowest_s)
    saved = checkpoint_cost.measured(trainer, progress, number + timed.steps, timed.steps, step_s)
    return saved | ({"notes": [*timed.hardware.get("notes", []), *saved["notes"]]} if "notes" in saved else {})


def _further(of: _Timed) -> dict[str, Any]:
    """Numbers beyond the record's own columns."""
    timed = of.samples
    return {
        "forward_backward_times_s": timed.forward_backward_s,
        "data_times_s": timed.data_s,
        "steps_per_sync": of.steps,
        "busy_share": timed.busy_share(of.steps),
        "device_times_s": timed.device_s or None,
        "own_times_s": timed.own_s,
        **({"own_times_unknown": timed.collectives_unknown} if timed.collectives_unknown else {}),
        "own_time_median_s": statistics.median(timed.own_s) if timed.own_s else None,
    }


class _Laps:
    """Seconds per part of the run, and a heartbeat at the end of each part of the start."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}
        progress.heartbeat(Phase.START)

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
        if name in ("device", "rendezvous", "build"):
            self._progress.heartbeat(Phase.START)
