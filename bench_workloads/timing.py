"""Time operations: repeated calls between two synchronisations, by CUDA events where there is a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from sweep.contract import Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, Run

# torch 2.13 renames the two that take one tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def seconds_per_call(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Mean seconds of ``repeats`` consecutive calls, after one warm-up call."""
    call()
    if device.type != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        return (time.perf_counter() - start) / repeats
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3 / repeats


def slowest_rank_s(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The same after a barrier, of the slowest rank, on every rank."""
    dist.barrier()
    seconds = torch.tensor(seconds_per_call(call, device, repeats), dtype=torch.float64, device=device)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return float(seconds.item())


def collective(
    operation: str, size: int, dtype: torch.dtype, device: torch.device, group: Any = None, distance: int = 1
) -> tuple[Callable[[], object], int]:
    """(calls the collective over the group's ranks, bytes in all: ``size``, or less so that all ranks have as much).

    ``operation``: all_reduce, all_gather, reduce_scatter, all_to_all, or p2p: every rank sends to the rank that is
    ``distance`` ranks after it and receives from the one as far before it, as nccl-tests' sendrecv.
    """
    ranks = dist.get_world_size(group)
    part = torch.ones(max(1, size // (dtype.itemsize * ranks)), dtype=dtype, device=device)
    whole = part.repeat(ranks)
    other = torch.empty_like(whole)
    peers = [
        dist.get_global_rank(group or dist.group.WORLD, (dist.get_rank(group) + step) % ranks)
        for step in (distance, -distance)
    ]

    def exchange() -> None:
        sending = dist.P2POp(dist.isend, whole, peers[0], group)
        for work in dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, other, peers[1], group)]):
            work.wait()

    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "all_gather": lambda: _all_gather(whole, part, group=group),
        "reduce_scatter": lambda: _reduce_scatter(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(other, whole, group=group),
        "p2p": exchange,
    }
    return calls[operation], whole.nbytes


def times_of(samples: Sequence[float]) -> dict[str, float]:
    """A row's median, least and greatest time."""
    return {
        "time_median_s": statistics.median(samples),
        "time_min_s": min(samples),
        "time_max_s": max(samples),
    }


def measured_rounds(
    run: Run, progress: Progress, measure: Callable[[], list[float]]
) -> tuple[list[tuple[float, ...]], list[float]]:
    """``measure`` as often as the run has iterations: (seconds of each operation after the warm-up; of each round)."""
    rounds, lengths = [], []
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        start = time.perf_counter()
        rounds.append(measure())
        lengths.append(time.perf_counter() - start)
    return list(zip(*rounds[run.warmup_iterations :], strict=True)), lengths
