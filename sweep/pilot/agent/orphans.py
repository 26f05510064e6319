"""Cleanup after an agent that died: a process that the leader starts on the node kills what its ranks left.

A rank dies with its agent (PDEATHSIG), but a daemon that a rank started may survive.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

from sweep.errors import log_error
from sweep.pilot.agent.cleanup import kill, remove_stale_scratch
from sweep.pilot.agent.processes import carrying
from sweep.pilot.job_spec import JobSpec

CLEAR_S = 40.0
"""as long as the leader waits for a node to be clean (CLEAN_S): a dead node does not answer, and the scheduler ends
what runs there"""


async def clear_orphans(spec: JobSpec, node: str) -> None:
    """Run this module on the node, alongside the agents' step. Errors are logged and do not stop the pilot."""
    command = [sys.executable, "-m", "sweep.pilot.agent.orphans", spec.token, node, spec.scratch]
    if spec.executor == "slurm":
        step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mpi=none", "--mem=0"]
        step += ["--cpu-bind=none", "--quiet"]
        command = [*step, *spec.srun, *spec.container_prefix, *command]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        log_error(f"{node}: cleanup after its agent failed: {error}")
        return
    try:
        _, output = await asyncio.wait_for(process.communicate(), CLEAR_S)
        if process.returncode:
            log_error(f"{node}: cleanup after its agent failed: {output.decode(errors='replace').strip()[-500:]}")
    except asyncio.TimeoutError:
        log_error(f"{node}: the cleanup step did not answer in {CLEAR_S:.0f} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def _main(token: str, node: str, scratch: str) -> int:
    left = await kill(lambda: carrying([token], node))
    remove_stale_scratch(Path(scratch), f"{token}.{node}")
    for process in left:
        print(process, file=sys.stderr)  # noqa: T201
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
