"""The measured loop: warm up, then timed iterations with nothing in them but the training step.

Timed: forward, backward, gradient reduction, clipping and optimizer, from a synchronised start to a synchronised end;
also reading a batch, where it comes from a file. Not timed: making a synthetic batch, the barrier before, the exchange
of results after, garbage collection, heartbeats.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from bench_workloads.transformer.data import in_turn
from sweep.contract import Phase

if TYPE_CHECKING:
    from torch import Tensor

    from bench_workloads.transformer.build import Trainer
    from bench_workloads.transformer.waiting import FlightRecorder, Waits
    from sweep.contract import Progress, SlowBound


@dataclass
class Samples:
    """Results of one rank's iterations, in order. Times in seconds."""

    step_s: list[float] = field(default_factory=list)
    between_s: list[float] = field(default_factory=list)
    """host time from the end of the iteration before to the start of this one; 0 for the first"""
    forward_backward_s: list[float] = field(default_factory=list)
    """host time until the backward was launched (GPU) or done (CPU)"""
    data_s: list[float] = field(default_factory=list)
    """host time to make the batch, before the timed region; of a file: to wait for it and copy it, within"""
    device_s: list[float] = field(default_factory=list)
    """the same steps by CUDA events; empty on CPU"""
    collective_s: list[float | None] = field(default_factory=list)
    """time in collectives within the step, waiting included"""
    collectives_unknown: str | None = None
    """why the time in collectives of a step is not known"""
    slowest_s: list[float] = field(default_factory=list)
    """the slowest rank's time of each step"""
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)

    def busy_share(self, steps: int) -> float | None:
        """The timed regions' share of the time from the first one's end to the last one's, each of so many steps."""
        busy, idle = steps * sum(self.step_s[1:]), sum(self.between_s[1:])
        return busy / (busy + idle) if busy else None

    @property
    def own_s(self) -> list[float] | None:
        """This rank's time of each step outside collectives; None where unknown."""
        if None in self.collective_s:
            return None
        return [step - (waited or 0.0) for step, waited in zip(self.step_s, self.collective_s, strict=True)]

    def last(self) -> Samples:
        """The last iteration alone."""
        own = {name: values[-1:] for name, values in vars(self).items() if isinstance(values, list)}
        return Samples(**own, collectives_unknown=self.collectives_unknown)


class NotANumberError(FloatingPointError):
    """The loss or the gradient norm is not finite."""


BUSY_SHARE = 0.9
BETWEEN_S = 0.2
"""two rounds of torch's watchdog, of 100 ms each: what a GPU idles between two iterations"""
MOST_STEPS = 16
"""further ones would need a flight recorder of hundreds of thousands of entries"""


def steps_that_keep_busy(step_s: float) -> int:
    """Steps of this many seconds between two synchronisations, so that the device works for BUSY_SHARE of the time.

    >>> steps_that_keep_busy(0.5), steps_that_keep_busy(2.0), steps_that_keep_busy(0.01)
    (4, 1, 16)
    """
    return min(MOST_STEPS, math.ceil(BETWEEN_S * BUSY_SHARE / (1 - BUSY_SHARE) / step_s))


@dataclass
class Stopwatch:
    """Measures iterations of one trainer, one after another."""

    trainer: Trainer
    progress: Progress
    device: torch.device
    collectives: Waits | FlightRecorder | None = None
    steps: int = 1
    """of an iteration, between two synchronisations"""
    watched: Callable[[], AbstractContextManager[object]] = nullcontext
    """entered right before the ranks begin an iteration together, left right after its end"""
    ended: float | None = None
    """when the last timed region did"""

    def run(
        self,
        first: int,
        count: int,
        more: Callable[[Samples], bool] = lambda _: False,
        lost: Callable[[Samples], bool] = lambda _: False,
    ) -> Samples:
        """``count`` iterations from number ``first`` on, and further ones while ``more`` holds on every rank; none once
        it has ``lost``.
        """
        samples = Samples()
        while (len(samples.step_s) < count or more(samples)) and not lost(samples):
            iteration = first + len(samples.losses)
            self.progress.heartbeat(Phase.STEADY if iteration else Phase.FIRST_ITERATION, iteration)
            self.iteration(iteration, samples)
        return samples

    def iteration(self, number: int, samples: Samples) -> None:
        """One iteration (of several steps, where they are not synchronised), its results appended to the samples."""
        begin = time.perf_counter()
        batches = in_turn(self.trainer.batches, range(number, number + self.steps))
        synchronise(self.device)
        samples.data_s.append(time.perf_counter() - begin)
        gc.collect()
        if self.collectives:
            self.collectives.catch_up()
        dist.barrier()
        with self.watched():  # a GPU's counters take a rank milliseconds: the second barrier aligns the ranks again
            dist.barrier()
            synchronise(self.device)
            if self.collectives:
                self.collectives.start()
            results = self._timed_steps(batches, samples)
        waited = self.collectives.lap() if self.collectives else None
        samples.collective_s.append(None if waited is None else waited / self.steps)
        if self.collectives and self.collectives.unknown:
            samples.collectives_unknown = self.collectives.unknown
        slowest = torch.tensor(samples.step_s[-1], device=self.device, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        samples.slowest_s.append(slowest.item())
        for step, (loss, norm) in enumerate(results):
            self._share(loss, norm, number + step, samples)

    def _timed_steps(
        self, batches: Iterator[tuple[Tensor, Tensor]], samples: Samples
    ) -> list[tuple[Tensor | None, Tensor]]:
        """Loss and gradient norm of each step; the times of one are appended to the samples."""
        on_gpu = self.device.type == "cuda"
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if on_gpu else []
        start = time.perf_counter()
        samples.between_s.append(0.0 if self.ended is None else start - self.ended)
        if events:
            events[0].record()
        results, launching, loading = [], 0.0, 0.0
        for _ in range(self.steps):
            asked = time.perf_counter()
            tokens, targets = next(batches)
            begun = time.perf_counter()
            loading += begun - asked
            loss = self.trainer.compute_gradients(tokens, targets)
            launching += time.perf_counter() - begun
            results.append((loss, self.trainer.optimizer.step()))
        if events:
            events[1].record()
        synchronise(self.device)
        self.ended = time.perf_counter()
        samples.step_s.append((self.ended - start) / self.steps)
        samples.forward_backward_s.append(launching / self.steps)
        samples.data_s[-1] = (samples.data_s[-1] + loading) / self.steps
        if events:
            samples.device_s.append(events[0].elapsed_time(events[1]) / 1e3 / self.steps)
        return results

    def _share(self, loss: Tensor | None, norm: Tensor, number: int, samples: Samples) -> None:
        """Average the loss over the ranks that have one, and raise for a non-finite one on every rank at once."""
        mine = torch.zeros((), device=self.device, dtype=torch.float64)
        if loss is not None:
            mine += (loss.full_tensor() if isinstance(loss, DTensor) else loss).detach()
        dist.all_reduce(mine)
        samples.losses.append(mine.item() * self.trainer.run.layout.pp / dist.get_world_size())
        samples.grad_norms.append(norm.item())
        if not (math.isfinite(samples.losses[-1]) and math.isfinite(samples.grad_norms[-1])):
            raise NotANumberError(
                f"loss or gradient norm is not finite at iteration {number}: loss {samples.losses[-1]}, "
                f"gradient norm {samples.grad_norms[-1]}"
            )


def has_lost(bound: SlowBound | None, warmup: Samples, timed: Samples) -> bool:
    """Whether the run may end by its bound. The same on every rank."""
    return bound is not None and bound.lost(warmup.slowest_s, timed.slowest_s)


def quiet_collector() -> None:
    """Let the garbage collector run between iterations only: else ranks straggle, each at a different time.

    Called first of all: what is imported by then is frozen, so that a collection costs what the run allocated
    (and does not copy the pages that a forked rank shares with its parent).
    """
    gc.freeze()
    gc.disable()


def synchronise(device: torch.device) -> None:
    """Wait for all kernels launched on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
