"""Entry point of tiers ``pair`` and ``all-nodes``: how fast nodes exchange data. All ranks of all nodes take part."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from bench_workloads import process
from bench_workloads.checks.rates import slowest
from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from sweep.contract import Progress, RankRun

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
TIMEOUT_S = 60.0
CALLS, MESSAGES = 3, 20
"""in a row of each timing: small messages take too short a time for the clock of one call"""


def main(run: RankRun, progress: Progress) -> None:
    """Measure each operation of the parameter ``cases`` ("message:4096,send:67108864") and report."""
    progress.heartbeat(Phase.START)
    device = process.pick_device(run.place)
    process.set_threads(run.place, 0, own_cores=False)
    process.join(run.place, device, TIMEOUT_S)
    rows = []
    began = time.perf_counter()
    for number, case in enumerate(str(run.params["cases"]).split(",")):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        operation, _, size = case.partition(":")
        beat = partial(progress.heartbeat, Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        rows.append(measure(operation, int(size), device, run.place.local_world_size, beat))
    progress.measured(Measurement(step_times_s=[time.perf_counter() - began], extra={"exchange": rows}))
    progress.heartbeat(Phase.FINISH)
    process.leave(TIMEOUT_S)


def measure(
    operation: str, size: int, device: torch.device, per_node: int, heartbeat: Callable[[], None]
) -> dict[str, Any]:
    """One operation at one size: seconds of the slowest rank."""
    ranks = dist.get_world_size()
    part = max(1, size // 4 // ranks)
    whole = torch.ones(part * ranks, dtype=torch.float32, device=device)
    own, other = whole[:part].clone(), torch.empty_like(whole)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: _all_gather(whole, own),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "message": lambda: to_the_next_node(whole, other, per_node),
        "send": lambda: to_the_next_node(whole, other, per_node),
    }
    bytes_ = 4 * part * ranks
    times = slowest(calls[operation], device, heartbeat, MESSAGES if operation == "message" else CALLS)
    return {"operation": operation, "bytes": bytes_, "ranks": ranks, **times}


def to_the_next_node(sent: torch.Tensor, received: torch.Tensor, per_node: int) -> None:
    """Every rank sends to the rank of its place in the next node (its rail) and receives from the one before."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, sent, (rank + per_node) % ranks),
            dist.P2POp(dist.irecv, received, (rank - per_node) % ranks),
        ]
    )
    for work in works:
        work.wait()
