"""The entry point of a simulated rank: sleep, send heartbeats, report what a real rank would report."""

from __future__ import annotations

import hashlib
import platform
import random
import time

from bench_workloads.hardware import peak_resident_set_bytes
from bench_workloads.simulated import Settings, faults, formula
from sweep.contract import Measurement, Phase, Progress, RankRun

_HEARTBEAT_EVERY_S = 1.0
_HEARTBEAT_MARGIN_S = 5.0


def main(run: RankRun, progress: Progress) -> None:
    """Simulate one rank. Many share a machine, so it only sleeps."""
    rank = _Rank(run, progress)
    rank.start()
    progress.measured(rank.measurement(*rank.iterate()))
    progress.heartbeat(Phase.FINISH)


class _Rank:
    """One simulated rank."""

    def __init__(self, run: RankRun, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._settings = Settings.of(run)
        self._fault = faults.fault_of(run, self._settings)
        self._stage = run.place.rank * run.layout.pp // run.place.world_size
        self._injects = self._settings.fault_rank in (-1, run.place.rank)
        self._nominal_s = self._settings.step_s or formula.step_s(run, self._settings.peak_tflops)
        # One stream for all ranks of a run: they wait for each other, so they share their iterations' lengths.
        self._random = random.Random(f"{run.place.seed}:{run.model}:{run.layout}:{run.repeat}")  # noqa: S311
        self._last_heartbeat = 0.0
        self._drawn: list[float] = []

    def start(self) -> None:
        self._progress.heartbeat(Phase.START)
        time.sleep(self._settings.start_s / self._settings.speed)
        self._strike(-1)

    def iterate(self) -> tuple[list[float], bool]:
        """The times of all iterations, warm-up included, and whether the run has lost: by what all ranks draw."""
        warmup, bound = self._run.warmup_iterations, self._run.place.bound
        times: list[float] = []
        for number in range(warmup + self._run.iterations):
            times.append(self._iteration(number))
            if bound is not None and bound.lost(self._drawn[:warmup], self._drawn[warmup:]):
                return times, True
        return times, False

    def measurement(self, times: list[float], lost: bool) -> Measurement:
        run, warmup = self._run, min(self._run.warmup_iterations, len(times) - 1)
        memory = formula.peak_memory_bytes(run, self._stage)
        extra = {"peak_resident_set_bytes": peak_resident_set_bytes()}
        if run.place.ranks_in_process > 1:
            extra["ranks_in_one_process"] = run.place.ranks_in_process
        digest = hashlib.sha256(f"{run.model}:{run.place.seed}".encode()).digest()
        start = 10 + digest[0] / 256
        return Measurement(
            step_times_s=times[warmup:],
            stopped=max(len(times) - run.warmup_iterations, 0) if lost else None,
            warmup_times_s=times[:warmup],
            peak_allocated_bytes=memory or None,
            peak_reserved_bytes=int(memory * 1.08) or None,
            memory_kind="by formula, nothing was allocated",
            losses=[start * 0.99**iteration for iteration in range(len(times))],
            grad_norms=None,
            parameters=formula.parameters_here(run) or None,
            device="simulated",
            versions={"python": platform.python_version()},
            effective=self._effective(),
            simulated=True,
            extra=extra,
        )

    def _iteration(self, number: int) -> float:
        self._heartbeat(number)
        self._strike(number)
        seconds = self._seconds(number)
        begin = time.perf_counter()
        time.sleep(seconds / self._settings.speed)
        return time.perf_counter() - begin if self._settings.speed == 1 else seconds

    def _seconds(self, number: int) -> float:
        seconds = self._nominal_s * max(0.1, self._random.gauss(1.0, self._settings.noise))
        seconds += self._settings.first_iteration_s * (number == 0)
        self._drawn.append(seconds)
        disturbed = self._fault == "slow_iteration" and number == self._settings.fault_iteration
        slow = self._injects and (self._fault == "slow_rank" or disturbed)
        return seconds + self._settings.fault_s * slow

    def _strike(self, iteration: int) -> None:
        """Inject the fault before this iteration, or wait for the rank that has."""
        at = self._settings.fault_iteration
        if self._fault == "oom_cuda_if_too_big":
            if iteration == 0 and formula.peak_memory_bytes(self._run) > self._settings.memory_gb * 1e9:
                faults.hang() if self._stage else faults.print_and_end("oom_cuda", self._run)
        elif self._injects and iteration == at:
            faults.act(self._fault, self._run, self._settings)
        elif self._fault not in faults.HARMLESS and not self._injects and iteration >= max(0, at):
            faults.hang()

    def _heartbeat(self, number: int) -> None:
        """Heartbeats cost the agent time: the first four iterations, then at most one a second."""
        now = time.monotonic()
        if number > 3 and now - self._last_heartbeat < _HEARTBEAT_EVERY_S:
            return
        self._last_heartbeat = now
        phase = Phase.STEADY if number else Phase.FIRST_ITERATION
        usual = max(self._nominal_s * 3, _HEARTBEAT_EVERY_S) / self._settings.speed
        self._progress.heartbeat(phase, number, due_s=usual + _HEARTBEAT_MARGIN_S if number >= 3 else None)

    def _effective(self) -> dict[str, int | str | bool]:
        layout = self._run.layout
        return {
            "dp": layout.dp * (2 if self._fault == "config_mismatch" else 1),
            "tp": layout.tp,
            "pp": layout.pp,
            "cp": layout.cp,
            "grad_accum": layout.grad_accum,
            "global_batch_tokens": self._run.global_batch_tokens,
        }
