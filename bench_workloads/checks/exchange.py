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

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13 renames it
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
        operation, _, size = case.partition(":")
        beat = partial(progress.heartbeat, Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        beat()
        rows.append(measure(operation, int(size), device, run.place.local_world_size, beat))
    progress.measured(Measurement(step_times_s=[time.perf_counter() - began], extra={"exchange": rows}))
    progress.heartbeat(Phase.FINISH)
    process.leave(TIMEOUT_S)


def measure(
    operation: str, size: int, device: torch.device, per_node: int, heartbeat: Callable[[], None]
) -> dict[str, Any]:
    """One operation at one size: seconds of the slowest rank.

    "message" and "send": every rank sends to the rank of its place in the next node (its rail).
    """
    kind = "p2p" if operation in ("message", "send") else operation
    call, bytes_ = collective(kind, size, device, per_node)
    times = slowest(call, device, heartbeat, MESSAGES if operation == "message" else CALLS)
    return {"operation": operation, "bytes": bytes_, "ranks": dist.get_world_size(), **times}


def collective(operation: str, size: int, device: torch.device, distance: int = 1) -> tuple[Callable[[], object], int]:
    """(calls the collective over all ranks, bytes in all: ``size``, or less so that all ranks have as much).

    ``operation``: all_reduce, all_gather, all_to_all, or p2p: every rank sends to the rank that is ``distance`` ranks
    after it and receives from the one as far before it, as nccl-tests' sendrecv.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    part = torch.ones(max(1, size // (4 * ranks)), dtype=torch.float32, device=device)
    whole = part.repeat(ranks)
    other = torch.empty_like(whole)

    def exchange() -> None:
        sending = dist.P2POp(dist.isend, whole, (rank + distance) % ranks)
        for work in dist.batch_isend_irecv([sending, dist.P2POp(dist.irecv, other, (rank - distance) % ranks)]):
            work.wait()

    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: _all_gather(whole, part),
        "all_to_all": lambda: dist.all_to_all_single(other, whole),
        "p2p": exchange,
    }
    return calls[operation], whole.nbytes
