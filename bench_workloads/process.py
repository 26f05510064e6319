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

from sweep.physics.hardware import gpu_kind

if TYPE_CHECKING:
    from sweep.contract import Place


ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""read when the first GPU memory is allocated; the second is the older name"""
GROWING = "expandable_segments:True"


class NoGpuError(RuntimeError):
    """The site states a GPU, and torch can use none."""


class WrongGpuError(RuntimeError):
    """The site states another kind of GPU than this rank has."""


def pick_device(place: Place) -> torch.device:
    """The device that the site states: this rank's GPU (where each rank sees one only, that one), or the CPU.

    Where the site's kind is not known (``place.gpu`` is empty): a GPU if torch finds one. Raises NoGpuError and
    WrongGpuError: a measurement on another device than the stated one would have the wrong peak.
    """
    if place.gpu == "cpu" or (not place.gpu and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise NoGpuError(f"the site states gpu: {place.gpu}, but torch sees no GPU: {_why_no_gpu()}")
    visible = torch.cuda.device_count()
    device = torch.device("cuda", place.local_rank if visible > 1 else 0)
    torch.cuda.set_device(device)
    if place.gpu:
        name = torch.cuda.get_device_name(device)
        where = f"the site states gpu: {place.gpu}, but this rank's device is"
        if "MIG" in name.upper().split():
            raise WrongGpuError(f"{where} a part of one: {name}. Turn MIG off")
        if (kind := gpu_kind([name])) not in (None, place.gpu):  # a name of no known kind is accepted
            raise WrongGpuError(f"{where} {name}. State gpu: {kind} in the site")
    return device


def _why_no_gpu() -> str:
    """Torch's own reason in one line, and what to do about it."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:  # a build without CUDA asserts
        reason = " ".join(str(error).split()).rstrip(".")
    else:
        reason = f"it can use none of {torch.cuda.device_count()}"
    built, visible = torch.version.cuda or torch.version.hip, os.environ.get("CUDA_VISIBLE_DEVICES")
    about = f"torch {torch.__version__}, built for {f'CUDA {built}' if built else 'no GPU'}"
    about += "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible!r}"
    return f"{reason} ({about}). {_remedy(reason, built)}"


def _remedy(reason: str, built: str | None) -> str:
    if built is None:
        return "Install a build of torch for GPUs in the ranks' environment, or state gpu: cpu"
    if "too old" in reason or "insufficient" in reason:
        return f"Update the nodes' driver, or install a build of torch for an older CUDA than {built}"
    return (
        "Request the node's GPUs (site: sbatch: [--gres=gpu:N], or --gpus-per-node), do not hide them by "
        "CUDA_VISIBLE_DEVICES, and check nvidia-smi on the node (in a container made by enroot or pyxis, which shows "
        "no GPU without it, set NVIDIA_VISIBLE_DEVICES=all); or state gpu: cpu"
    )


def grow_segments() -> str | None:
    """Let the CUDA allocator grow its segments (``expandable_segments``), so that it fragments less. Call it first.

    The user's own setting is kept, and ROCm's default, where it is not generally available. Returns what is set.
    Torch is imported before: a release that reads the variable then would never see it, so torch is asked as well.
    """
    given = next((os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ), None)
    if given is None and torch.version.cuda is not None:
        given = os.environ[ALLOCATOR_VARIABLES[0]] = GROWING
        # Renamed between torch 2.8 and 2.13. Neither touches the device.
        for name in ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings"):
            if hasattr(torch._C, name):
                getattr(torch._C, name)(given)
                break
    return given


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


def limit_groups(timeout_s: float) -> None:
    """Let every process group of this rank time out as the world's does: others keep 10 min (NCCL) or 30 (gloo).

    Call it once all groups are made. Torch has only this function for it (as torchtitan's ``set_pg_timeouts``).
    """
    for group in list(dist.distributed_c10d._world.pg_map):
        if not isinstance(group, int) and "fake" not in dist.get_backend(group):
            dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)


def leave(timeout_s: float = 10.0) -> None:
    """Leave the process group, once nothing refers to a model any more; abandon it if that takes too long.

    A model that outlives its process group deadlocks (its destructor joins a thread under the interpreter's lock), so
    the caller drops it first; what is left in cycles is collected here.
    """
    gc.collect()
    dist.barrier()
    gpu = torch.cuda.current_device() if torch.cuda.is_available() else None

    def destroy() -> None:
        if gpu is not None:
            torch.cuda.set_device(gpu)  # a new thread's is another one
        dist.destroy_process_group()

    leaving = threading.Thread(target=destroy, daemon=True)
    leaving.start()
    leaving.join(timeout_s)
    if leaving.is_alive():
        print(f"leaving the process group took more than {timeout_s:g} s: abandoned it", file=sys.stderr)  # noqa: T201
