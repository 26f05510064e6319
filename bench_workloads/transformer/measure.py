"""The measured loop: warm up, then timed iterations with nothing in them but the training step.

Timed: forward, backward, gradient reduction, clipping and optimizer, from a synchronised start to a synchronised end.
Not timed: making the batch, the barrier before, the exchange of the loss after, garbage collection, beats.
"""

from __future__ import annotations

import gc
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from sweep.contract import Phase

if TYPE_CHECKING:
    from torch import Tensor

    from bench_workloads.transformer.build import Trainer
    from sweep.contract import Progress


@dataclass
class Samples:
    """What the iterations of one rank showed, in order. Times in seconds."""

    step_s: list[float] = field(default_factory=list)
    forward_backward_s: list[float] = field(default_factory=list)
    """host time until the backward was launched (GPU) or done (CPU)"""
    device_s: list[float] = field(default_factory=list)
    """the same steps by the GPU's own events; empty on CPU"""
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)


class NotANumberError(FloatingPointError):
    """The loss or the gradient norm is no finite number."""


def run_iterations(trainer: Trainer, progress: Progress, device: torch.device, *, first: int, count: int) -> Samples:
    """Iterations ``first`` to ``first + count - 1``, each measured."""
    samples = Samples()
    for iteration in range(first, first + count):
        progress.beat(Phase.STEADY if iteration else Phase.FIRST_ITERATION, iteration)
        tokens, targets = trainer.batches(iteration)
        gc.collect()
        synchronise(device)
        dist.barrier()
        loss, norm = _timed_step(trainer, tokens, targets, device, samples)
        _share_results(trainer, loss, norm, iteration, device, samples)
    return samples


def quiet_collector() -> None:
    """Hide all that lives from the garbage collector, and let it run only when told: ranks then do not straggle."""
    gc.collect()
    gc.freeze()
    gc.disable()


def synchronise(device: torch.device) -> None:
    """Wait for all that was launched on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _timed_step(
    trainer: Trainer, tokens: Tensor, targets: Tensor, device: torch.device, samples: Samples
) -> tuple[Tensor | None, Tensor]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else []
    start = time.perf_counter()
    if events:
        events[0].record()
    loss = trainer.compute_gradients(tokens, targets)
    middle = time.perf_counter()
    norm = trainer.optimizer.step()
    if events:
        events[1].record()
    synchronise(device)
    samples.step_s.append(time.perf_counter() - start)
    samples.forward_backward_s.append(middle - start)
    if events:
        samples.device_s.append(events[0].elapsed_time(events[1]) / 1e3)
    return loss, norm


def _share_results(
    trainer: Trainer, loss: Tensor | None, norm: Tensor, iteration: int, device: torch.device, samples: Samples
) -> None:
    """Average the loss over the ranks that computed one, and refuse what is no number on every rank at once."""
    mine = torch.zeros((), device=device, dtype=torch.float64) if loss is None else whole(loss).double()
    dist.all_reduce(mine)
    value = mine.item() * trainer.run.layout.pp / dist.get_world_size()
    samples.losses.append(value)
    samples.grad_norms.append(norm.item())
    if not (math.isfinite(value) and math.isfinite(samples.grad_norms[-1])):
        raise NotANumberError(f"loss is {value}, gradient norm {samples.grad_norms[-1]} at iteration {iteration}")


def whole(tensor: Tensor) -> Tensor:
    """A plain tensor from one that may be distributed and replicated."""
    full = getattr(tensor, "full_tensor", None)
    return tensor.detach() if full is None else full().detach()
