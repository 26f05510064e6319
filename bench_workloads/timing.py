"""Time operations: repeated calls between two synchronisations, by CUDA events where there is a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # torch 2.13 renames it


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
