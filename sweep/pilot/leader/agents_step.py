"""The processes of a pilot's agents: one srun on Slurm, or one process per simulated node."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.pilot.job import all_cpus
from sweep.pilot.job_spec import JobSpec

LEAVE_S = 20.0
"""how long srun may take to end once its agents did: twice Slurm's default MessageTimeout"""

Processes = Sequence[subprocess.Popen[bytes]]


def start_agents(spec: JobSpec, directory: Path) -> Processes:
    """Start an agent on each node."""
    output = os.open(directory / "agents.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    agent = [*spec.container_prefix, sys.executable, "-m", "sweep.pilot.agent", str(directory)]
    agent += ["--scratch", spec.scratch]
    environment = dict(os.environ)
    if spec.executor == "slurm":
        commands = [[*srun(spec, environment), *agent]]
        environment |= STEP_ENVIRONMENT
    else:
        commands = [[*agent, "--node", f"local-{index}", "--index", str(index)] for index in range(spec.nodes)]
    try:
        return [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
            for command in commands
        ]
    finally:
        os.close(output)


STEP_ENVIRONMENT = {"SLURM_OOM_KILL_STEP": "0"}
"""From Slurm 23.11 on a site may have all tasks of a step killed when the kernel kills one process for its memory
(OOMKillStep): one rank's OOM would end the agents of all nodes. As a variable, since older sruns refuse the option."""


def srun(spec: JobSpec, environment: Mapping[str, str]) -> list[str]:
    """One step with all of each node, that survives the failure of another node (seen on Slurm 22.05).

    Agents are no MPI processes: without --mpi=none a site's default plugin would set PMI variables for them.
    """
    command = ["srun", f"--nodes={spec.nodes}", f"--ntasks={spec.nodes}", "--ntasks-per-node=1", "--mpi=none"]
    command += ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none", "--mem=0", "--unbuffered"]
    return [*command, *all_cpus(environment), *spec.srun]


def ended(processes: Processes) -> bool:
    """Whether all of them have ended."""
    return all(process.poll() is not None for process in processes)


async def wait_for_end(processes: Processes) -> None:
    """Wait until the agents left; SIGTERM to those that did not, in time."""
    for _ in range(int(LEAVE_S / 0.02)):
        if ended(processes):
            return
        await asyncio.sleep(0.02)
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
