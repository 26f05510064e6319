"""The entry point of an agent: `python -m sweep.pilot.agent`, as the leader's srun starts it."""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401 (asyncio imports it late, and an import needs a free descriptor)
import os
import signal
import socket
import tempfile
import threading
from pathlib import Path

from sweep.pilot.agent.agent import Agent
from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK, become_subreaper, note_memory_in_use
from sweep.pilot.agent.reconnect import GiveUp, LeaderSearch
from sweep.pilot.clock import PausingClock
from sweep.pilot.job import cancel_own_job

TERMINATED_S = 4.0
"""after SIGTERM the leader drains and sends Leave within this time; Slurm's own default KillWait is 30 s"""


async def _main(pilot_dir: Path, node: str, index: int, scratch: Path) -> None:
    become_subreaper()
    clock = PausingClock()
    agent = Agent(node, index, scratch, clock)
    loop = asyncio.get_running_loop()
    ticking = asyncio.ensure_future(clock.tick())
    serving = asyncio.ensure_future(_serve(agent, LeaderSearch(pilot_dir, clock)))
    loop.add_signal_handler(signal.SIGCHLD, agent.reap)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _terminate, agent, serving)
    end = GiveUp.LEAVE
    try:
        end = await serving
    except asyncio.CancelledError:  # SIGTERM
        pass
    finally:
        await agent.end(grace_s=1.0)
        ticking.cancel()
    if end is GiveUp.CANCEL:
        cancel_own_job()


async def _serve(agent: Agent, search: LeaderSearch) -> GiveUp:
    """Serve the leader until it sends Leave or is lost for good. The step never fails: the other nodes go on."""
    while not isinstance(channel := await search.connect(), GiveUp):
        try:
            if await agent.serve(channel) or agent.is_terminated:
                return GiveUp.LEAVE
        finally:
            channel.close()
        await agent.abandon()
    return channel


def _terminate(agent: Agent, serving: asyncio.Task[GiveUp]) -> None:
    """The scheduler ends the job, or signals its steps only: the leader drains, and the agent leaves with it."""
    if agent.terminated():
        asyncio.get_running_loop().call_later(TERMINATED_S, serving.cancel)
    else:
        serving.cancel()


def main() -> None:
    """Take the arguments PILOT_DIR --node NAME --scratch DIR, and serve the leader until it sends Leave."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pilot_dir", type=Path)
    parser.add_argument("--node", default=os.environ.get("SLURMD_NODENAME") or socket.gethostname())
    parser.add_argument("--index", type=int, default=int(os.environ.get("SLURM_PROCID", "0")))
    parser.add_argument("--scratch", type=Path, required=True)
    arguments = parser.parse_args()
    os.umask(0o077)
    os.environ[NODE_MARK] = arguments.node
    prefix = f"{os.environ.get(PILOT_MARK, 'sweep')}.{arguments.node}."
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=arguments.scratch))
    threading.Thread(target=note_memory_in_use, daemon=True).start()
    asyncio.run(_main(arguments.pilot_dir, arguments.node, arguments.index, scratch))


if __name__ == "__main__":
    main()
