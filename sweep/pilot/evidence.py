"""What is kept of ranks that are about to be killed: their Python stacks and their state in /proc."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from sweep.pilot.ranks import Rank

STACKS_WAIT_S = 0.5
STACKS_BYTES = 16_000


async def gather(ranks: Sequence[Rank], scratch: Path) -> dict[int, str]:
    """Rank -> what it was doing, for every living rank. Bounded: one that cannot answer is described from outside."""
    living = [rank for rank in ranks if rank.alive and rank.pid is not None]
    for rank in living:
        if rank.pid is not None and (scratch / f"stacks.{rank.number}").exists():
            # To the rank alone: a child of it (a compiler, a loader) would die of this signal.
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGUSR1)
    if living:
        await asyncio.sleep(STACKS_WAIT_S)
    return {rank.number: _describe(rank, scratch) for rank in living}


def _describe(rank: Rank, scratch: Path) -> str:
    parts = []
    with contextlib.suppress(OSError):
        parts.append((scratch / f"stacks.{rank.number}").read_text(errors="replace")[:STACKS_BYTES])
    for name in ("wchan", "status"):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{rank.pid}/{name}").read_text()
            state = [line for line in text.splitlines() if name == "wchan" or line.startswith("State:")]
            parts.append(f"{name}: " + " ".join(state))
    return "\n".join(part for part in parts if part)
