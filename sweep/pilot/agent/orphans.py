"""Cleanup after an agent that died: a process that the leader starts on the node kills what its ranks left.

A rank dies with its agent (PDEATHSIG), but a daemon that a rank started may survive.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sweep.pilot.agent.cleanup import kill, remove_stale_scratch
from sweep.pilot.agent.processes import carrying

REACHED = "the node is reached"
"""printed first: a process starts on the node"""


async def _main(token: str, node: str, scratch: str) -> None:
    print(REACHED, flush=True)  # noqa: T201
    left = await kill(lambda: carrying([token], node))
    remove_stale_scratch(Path(scratch), f"{token}.{node}")
    for process in left:
        print(process, file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
