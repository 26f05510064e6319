"""What is kept of ranks that are about to be killed: their Python stacks and their state in /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from sweep.pilot.flight import ask_for_dump, tell_dump
from sweep.pilot.ranks import Rank, one_per_process

STACKS_WAIT_S = 0.5
STACKS_BYTES = 16_000
PY_SPY_S = 5.0
PY_SPY_RANKS = 8
"""so many at once on one node: with more, the first ones tell enough"""


async def gather(ranks: Sequence[Rank], scratch: Path) -> dict[int, str]:
    """Rank -> what it was doing, for every living process its first rank.

    Bounded: one that cannot answer is described from outside.
    """
    living = one_per_process(ranks)
    for rank in living:
        if rank.pid is not None and (scratch / f"stacks.{rank.number}").exists():
            # To the rank alone: a child of it (a compiler, a loader) would die of this signal.
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGUSR1)
            ask_for_dump(scratch, rank.number)
    if living:
        await asyncio.sleep(STACKS_WAIT_S)
    mute = [rank for rank in living if not _stacks(rank, scratch)][:PY_SPY_RANKS]
    spied = dict(zip((r.number for r in mute), await asyncio.gather(*(_spy(r) for r in mute)), strict=True))
    return {rank.number: _describe(rank, scratch, spied.get(rank.number, "")) for rank in living}


def _stacks(rank: Rank, scratch: Path) -> str:
    """What faulthandler wrote; empty for a program that does not have it, or that cannot answer."""
    with contextlib.suppress(OSError):
        return (scratch / f"stacks.{rank.number}").read_text(errors="replace")[:STACKS_BYTES]
    return ""


async def _spy(rank: Rank) -> str:
    """py-spy's look from outside, where it is installed and may."""
    if shutil.which("py-spy") is None:
        return ""
    command = ["py-spy", "dump", "--nonblocking", "--pid", str(rank.pid)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PY_SPY_S)
    except asyncio.TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return ""
    return output.decode(errors="replace")[:STACKS_BYTES]


def _describe(rank: Rank, scratch: Path, spied: str) -> str:
    parts = [_stacks(rank, scratch), spied, tell_dump(scratch, rank.number)]
    for name in ("wchan", "status"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{rank.pid}/{name}").read_text()
            state = [line for line in text.splitlines() if name == "wchan" or line.startswith("State:")]
            parts.append(f"{name}: " + " ".join(state))
    return "\n".join(part for part in parts if part)
