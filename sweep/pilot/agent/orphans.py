"""What an agent that died leaves: the ends of its ranks, by a process that the leader sends to the node in its place.

A rank dies with its agent (PDEATHSIG), but what a rank has let go as a daemon may live on.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

from sweep.errors import log_error
from sweep.pilot.agent.cleanup import end_escaped, remove_scratch
from sweep.pilot.order import PilotOrder

CLEAR_S = 40.0
"""where the node itself is dead nothing answers, and the scheduler ends what runs there"""


async def clear_orphans(order: PilotOrder, node: str) -> None:
    """Run this module on the node, beside the agents' step. What goes wrong is said, and is no reason to stop."""
    command = [sys.executable, "-m", "sweep.pilot.agent.orphans", order.token, node, order.scratch]
    if order.executor == "slurm":
        command = [*_beside(node), *order.srun, *order.container_prefix, *command]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        log_error(f"{node}: not cleared of what its agent left: {error}")
        return
    try:
        _, said = await asyncio.wait_for(process.communicate(), CLEAR_S)
        if process.returncode:
            log_error(f"{node}: not cleared of what its agent left: {said.decode(errors='replace').strip()[-500:]}")
    except asyncio.TimeoutError:
        log_error(f"{node}: no answer in {CLEAR_S:.0f} s to a step that was to clear it")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _beside(node: str) -> list[str]:
    step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mem=0", "--cpu-bind=none"]
    return [*step, "--quiet"]


async def _main(token: str, node: str, scratch: str) -> int:
    left = await end_escaped(token, node)
    for directory in Path(scratch).glob(f"{token}.{node}.*"):
        remove_scratch(directory)
    for words in left:
        print(words, file=sys.stderr)  # noqa: T201
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
