"""Join the other ranks, and leave them: device, store, process group, bounded teardown."""

from __future__ import annotations

import gc
import os
import sys
import threading
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from sweep.contract import Place


def pick_device(place: Place) -> torch.device:
    """This rank's GPU, or the CPU. Where each rank sees one GPU only, that one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    visible = torch.cuda.device_count()
    device = torch.device("cuda", place.local_rank if visible > 1 else 0)
    torch.cuda.set_device(device)
    return device


def set_threads(place: Place, wanted: int, *, own_cores: bool) -> int:
    """Set the number of threads: the requested one, or the rank's share of cores. Returns it.

    ``own_cores``: the rank has its cores exclusively; else it shares them with the node's ranks.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = wanted or max(1, allowed if own_cores else allowed // place.local_world_size)
    torch.set_num_threads(threads)
    return threads


def join(place: Place, device: torch.device, timeout_s: float) -> None:
    """Join the other ranks. Rank 0 serves the store on the socket that it inherited, so that the port stays bound."""
    timeout = timedelta(seconds=timeout_s)
    store = dist.TCPStore(
        place.master_addr,
        place.master_port,
        place.world_size,
        is_master=place.rank == 0,
        timeout=timeout,
        wait_for_workers=False,
        master_listen_fd=place.master_listen_fd if place.rank == 0 else None,
    )
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=store,
        rank=place.rank,
        world_size=place.world_size,
        timeout=timeout,
        device_id=device if device.type == "cuda" else None,
    )


def leave(timeout_s: float) -> bool:
    """Leave the process group, once nothing refers to a model any more. False if that took too long.

    A model that outlives its process group deadlocks (its destructor joins a thread under the interpreter's lock), so
    the caller drops it first; what is left in cycles is collected here.
    """
    gc.collect()
    dist.barrier()
    leaving = threading.Thread(target=_destroy, args=(_current_gpu(),), daemon=True)
    leaving.start()
    leaving.join(timeout_s)
    if leaving.is_alive():
        print(f"leaving the process group took more than {timeout_s:g} s: abandoned it", file=sys.stderr)  # noqa: T201
    return not leaving.is_alive()


def _current_gpu() -> int | None:
    return torch.cuda.current_device() if torch.cuda.is_available() else None


def _destroy(gpu: int | None) -> None:
    """In a separate thread, whose default would be another GPU."""
    if gpu is not None:
        torch.cuda.set_device(gpu)
    dist.destroy_process_group()
