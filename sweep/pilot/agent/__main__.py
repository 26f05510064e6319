"""The entry point of an agent: `python -m sweep.pilot.agent`, as the leader's srun starts it."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
from pathlib import Path

from sweep.pilot.agent.agent import CONNECT_TIMEOUT_S, Agent
from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK, become_subreaper
from sweep.pilot.channel import Rendezvous, connect
from sweep.pilot.job import cancel_own_job


async def _main(pilot_dir: Path, node: str, index: int, scratch: Path) -> int:
    become_subreaper()
    agent = Agent(node, index, scratch)
    channel = await connect(Rendezvous.read(pilot_dir / "rendezvous"), CONNECT_TIMEOUT_S)
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(agent.serve(channel))
    loop.add_signal_handler(signal.SIGCHLD, agent.reap)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        released = await serving
    except asyncio.CancelledError:
        return 143  # SIGTERM from Slurm: the short teardown
    finally:
        await agent.end(grace_s=1.0)
        channel.close()
    if not released:
        cancel_own_job()
    return 0 if released else 1


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
    sys.exit(asyncio.run(_main(arguments.pilot_dir, arguments.node, arguments.index, scratch)))


if __name__ == "__main__":
    main()
