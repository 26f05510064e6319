"""Evidence from ranks that are about to be killed: Python stacks, state in /proc, torch's NCCL flight recorder.

A flight recorder's dump is a pickle of plain values (torch/csrc/distributed/c10d/FlightRecorder.hpp): it is read by an
unpickler that creates nothing else. Requested by a write to `<TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe`. Not
verified on hardware.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.pilot.agent.ranks import Rank, one_per_process

STACKS_WAIT_S = 0.5
"""faulthandler answers within a signal handler; who needs longer cannot answer"""
DUMP_WAIT_S = 1.5
"""torch reads the pipe once in TORCH_NCCL_COORD_CHECK_MILSEC, by default 1,000 ms (torch/csrc/distributed/c10d/
ProcessGroupNCCL.hpp), and then writes its dump"""
POLL_S = 0.1
STACKS_BYTES = 16_000

DUMP_PREFIX = "flight."
DUMP_BYTES = 64 << 20
_BAD_DUMP = (OSError, pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError)


async def gather(ranks: Sequence[Rank], scratch: Path) -> dict[int, str]:
    """Rank -> what it was doing, the first rank of every living process.

    Bounded in time: a process that cannot answer is described from outside.
    """
    living, asked = one_per_process(ranks), []
    for rank in living:
        if rank.pid is not None and (scratch / f"stacks.{rank.number}").exists():
            # To the rank alone: a child of it (a compiler, a loader) would die of this signal.
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGUSR1)
            if ask_for_dump(scratch, rank.number):
                asked.append(rank.number)
    if living:
        await asyncio.sleep(STACKS_WAIT_S)
    deadline = time.monotonic() + DUMP_WAIT_S - STACKS_WAIT_S
    while any(not dump_text(scratch, number) for number in asked) and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
    found = {}
    for rank in living:
        parts = [_stacks(rank, scratch), dump_text(scratch, rank.number)]
        for name in ("wchan", "status"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{rank.pid}/{name}").read_text()
                state = [line for line in text.splitlines() if name == "wchan" or line.startswith("State:")]
                parts.append(f"{name}: " + " ".join(state))
        found[rank.number] = "\n".join(part for part in parts if part)
    return found


def _stacks(rank: Rank, scratch: Path) -> str:
    """What faulthandler wrote; empty for a program without it, or that cannot answer."""
    with contextlib.suppress(OSError):
        return (scratch / f"stacks.{rank.number}").read_text(errors="replace")[:STACKS_BYTES]
    return ""


def flight_recorder_environment(scratch: Path) -> dict[str, str]:
    """Environment that makes torch record, dump on a timeout without delay, and listen for dump requests."""
    return {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_FR_DUMP_TEMP_FILE": str(scratch / DUMP_PREFIX),
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(scratch / DUMP_PREFIX),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(scratch / DUMP_PREFIX),
    }


def ask_for_dump(scratch: Path, rank: int) -> bool:
    """Request a dump; False where no process listens."""
    with contextlib.suppress(OSError):
        fd = os.open(scratch / f"{DUMP_PREFIX}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(fd, b"1") == 1
        finally:
            os.close(fd)
    return False


def dump_text(scratch: Path, rank: int) -> str:
    """The last collective of the rank, as text; empty where there is no dump."""
    path = scratch / f"{DUMP_PREFIX}{rank}"
    with contextlib.suppress(*_BAD_DUMP):
        if path.stat().st_size <= DUMP_BYTES:
            with path.open("rb") as file:
                return as_text(_PlainUnpickler(file).load())
    return ""


def as_text(dump: Mapping[str, Any]) -> str:
    """The last entry that started and did not complete, else the last completed."""
    entries = list(dump.get("entries", ()))
    pending = [entry for entry in entries if entry.get("state") != "completed"]
    if not entries:
        return "NCCL flight recorder: no collective was started"
    entry = pending[0] if pending else entries[-1]
    return (
        f"NCCL flight recorder: {entry.get('profiling_name')} number {entry.get('collective_seq_id')} is "
        f"{entry.get('state')}, sizes {entry.get('input_sizes')}; {len(pending)} not completed"
    )


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, texts, lists and maps only: a rank's file must not run anything here."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not a plain value")
