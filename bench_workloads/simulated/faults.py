"""Fault injection with real effects: the exit codes, signals, errors and messages of a failing training job.

Nothing here names an outcome to the watcher. A fault that ends a rank leaves the other ranks waiting, as a
collective would.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from bench_workloads.simulated import Settings
    from sweep.contract import RankRun

HARMLESS = ("", "leak_child", "flood", "slow_start", "slow_rank", "slow_iteration", "config_mismatch")
"""faults after which all ranks continue; ``""``: none"""

_OOM = (
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total "
    "capacity of 79.11 GiB of which 1.02 GiB is free. Including non-PyTorch memory, this process has 78.08 GiB memory "
    "in use. Of the allocated memory 74.51 GiB is allocated by PyTorch, and 1.83 GiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True "
    "to avoid fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
_NCCL_TIMEOUT = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=25166336, NumelOut=25166336, Timeout(ms)=600000) ran for 600018 "
    "milliseconds before timing out.\n"
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:756] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the "
    "asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
)
_NCCL_ERROR = (
    "[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: "
    "/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, unhandled system error (run with NCCL_DEBUG=INFO "
    "for details), NCCL version 2.27.5\n[rank{rank}]: ncclSystemError: System call (e.g. socket, malloc) or external "
    "library call failed or device error."
)
_CUDA_ERROR = (
    "[rank{rank}]: torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
MESSAGES = {"oom_cuda": _OOM, "nccl_timeout": _NCCL_TIMEOUT, "nccl_error": _NCCL_ERROR, "cuda_error": _CUDA_ERROR}
"""fault -> what a rank prints before it exits, or after a timeout aborts"""


def fault_of(run: RankRun, settings: Settings) -> str:
    """The fault of a run, or none: the same for all its ranks, by the seed and the run's hash."""
    if not settings.faults:
        return ""
    params = sorted(run.params.items())
    run_text = f"{run.model}:{run.nodes}:{run.layout}:{params}:{run.repeat}:{run.dtype}:{run.compile}"
    digest = hashlib.sha256(f"{run.place.seed}:{run_text}".encode()).digest()
    if int.from_bytes(digest[:6], "big") / 2**48 >= settings.fault_probability:
        return ""
    return settings.faults[int.from_bytes(digest[6:12], "big") % len(settings.faults)]


def act(fault: str, run: RankRun, settings: Settings) -> None:
    """Inject the fault. Returns only for faults that a rank survives."""
    if fault in MESSAGES:
        print_and_end(fault, run)
    if fault in ACTS:  # the others are no single event: the iterations implement them
        ACTS[fault](settings)
    if fault in ("signal", "segfault"):
        hang()  # a signal may arrive a moment after it was sent


def print_and_end(fault: str, run: RankRun) -> NoReturn:
    """Print what the library prints on such a failure, and end as it does."""
    text = MESSAGES[fault].format(rank=run.place.rank, gpu=run.place.local_rank)
    print(text, file=sys.stderr, flush=True)  # noqa: T201
    if fault == "nccl_timeout":
        os.abort()
    os._exit(1)


def hang() -> NoReturn:
    """Block as in a collective whose peer is gone, or until a signal arrives. SIGTERM ends it."""
    while True:
        time.sleep(3600)


def _raise(error: Exception) -> NoReturn:
    raise error


def _ignore_sigterm() -> NoReturn:
    libc = ctypes.CDLL(None)  # Python's own signal() works in the main thread only, and a rank may run in another
    for number in (signal.SIGTERM, signal.SIGINT):
        libc.signal(int(number), ctypes.c_void_p(int(signal.SIG_IGN)))
    hang()


def _leak_child(seconds: float) -> None:
    """Leak a daemon process: it leaves the session and the parent."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(3, 4096)
    time.sleep(seconds)
    os._exit(0)


def _bind_twice() -> None:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        second.bind(first.getsockname())


def _write_to_full_device() -> None:
    try:
        with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(b"0" * 4096)
    except FileNotFoundError:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None


def _flood() -> None:
    """Eight megabytes of log lines on stderr."""
    line = ("NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC " * 8 + "\n").encode() * 64
    for _ in range(320):
        os.write(2, line)


ACTS: dict[str, Callable[[Settings], object]] = {
    "exception": lambda _: _raise(RuntimeError("shape '[2, 4096, 32]' is invalid for input of size 1048576")),
    "exit_code": lambda settings: os._exit(settings.fault_code),
    "quiet_exit": lambda _: os._exit(0),
    "signal": lambda settings: os.kill(os.getpid(), settings.fault_code),
    "segfault": lambda _: ctypes.string_at(0),
    "hang": lambda _: hang(),
    "ignore_sigterm": lambda _: _ignore_sigterm(),
    "leak_child": lambda settings: _leak_child(settings.fault_s),
    "oom_host": lambda _: bytearray(1 << 62),
    "nan": lambda settings: _raise(
        FloatingPointError(f"loss is nan, gradient norm nan at iteration {settings.fault_iteration}")
    ),
    "import_error": lambda _: importlib.import_module("flash_attn_that_is_not_there"),
    "port_in_use": lambda _: _bind_twice(),
    "disk_full": lambda _: _write_to_full_device(),
    "config_error": lambda _: _raise(
        ValueError("num_attention_heads (30) must be divisible by tensor parallel size (4)")
    ),
    "flood": lambda _: _flood(),
    "slow_start": lambda settings: time.sleep(settings.fault_s),
}
FAULTS = (*MESSAGES, *ACTS, "oom_cuda_if_too_big", "config_mismatch", "slow_rank", "slow_iteration")
"""the faults that a rank can inject"""
