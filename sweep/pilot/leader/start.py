"""`python -m sweep.pilot.leader.start SWEEP_DIR PILOT`: a pilot, from its start.

Its agents come first, and while they start the leader's own imports and the plan. A leader needs half a second for its
imports, and so do srun and the agents: a pilot of short runs notices the sum.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from sweep.errors import SweepError, log_error
from sweep.pilot.clock import PausingClock
from sweep.pilot.job import cancel_own_job
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.network import set_variables
from sweep.pilot.leader.nodes import agents
from sweep.store.directory import SweepDir, write_once


def main(sweep_dir: str, pilot: str) -> None:
    """Lead the pilot `pilot` of the sweep in `sweep_dir`. Called in the batch job, or as a process of its own."""
    directory = SweepDir(Path(sweep_dir).absolute())
    os.chdir(directory.launched_from() or ".")  # the agents' too, and their ranks'
    lead_once(directory.pilot(pilot), partial(_lead, directory))


def lead_once(folder: Path, lead: Callable[[JobSpec, str], Coroutine[Any, Any, None]]) -> None:
    """Lead the pilot of this folder, given its job spec and the id of this job: once, and end the job.

    A second job with its token (its submission was assumed lost) does nothing: the first does the work.
    """
    os.umask(0o077)
    step_daemon = os.getppid()
    spec = JobSpec.read(folder)
    if os.environ.get("SWEEP_PILOT", spec.token) != spec.token:  # another sweep took the place of this job's
        log_error(f"{folder}: this job is {os.environ['SWEEP_PILOT']}, and the pilot here is {spec.token}: it ends")
        return
    if spec.executor == "local":
        from sweep.executors.local import LocalJob  # psutil

        job_id = LocalJob.of(os.getpid()).job_id
    else:
        import psutil

        job_id = os.environ["SLURM_JOB_ID"]
        # Slurm 22.05 does not state it: the daemon of the batch step begins with the job.
        os.environ.setdefault("SLURM_JOB_START_TIME", f"{psutil.Process(step_daemon).create_time():.0f}")
    try:
        me = {"job_id": job_id, "host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
        write_once(folder / "started", json.dumps(me))
    except FileExistsError:
        return
    os.environ["SWEEP_PILOT"] = spec.token
    set_variables(spec, os.environ)
    asyncio.run(lead(spec, job_id))
    # Without the slurmstepd above the batch script Slurm does not learn that the script ended: the job would stay
    # RUNNING, with its nodes, until the node registers again (after 107 s on 22.05 with a SlurmdTimeout of 20 s).
    if spec.executor == "slurm" and os.getppid() != step_daemon:
        cancel_own_job()


async def _lead(directory: SweepDir, spec: JobSpec, job_id: str) -> None:
    clock = PausingClock()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):  # until the leader has handlers that end it
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)
    async with agents(spec, directory.pilot(spec.name), clock) as nodes:
        import concurrent.futures.thread  # noqa: F401 (asyncio imports it late)

        import pyarrow.parquet  # here, and not above: these take most of the time

        from sweep.pilot.leader.leader import Leader
        from sweep.planning.runs import RUN_COLUMNS, runs_of_all, runs_on
        from sweep.plugins import WORKLOAD

        tables = [pyarrow.parquet.ParquetFile(path).read(columns=list(RUN_COLUMNS)) for path in directory.plans()]
        runs = runs_on(runs_of_all(tables), spec.node_group)
        for planned in (*runs[:1], *runs[-1:]):  # imported now: an import needs a free descriptor
            with contextlib.suppress(SweepError):  # the attempt reports it
                WORKLOAD.find(planned.run().workload)
        await Leader(directory, spec, runs, job_id, clock).lead(nodes)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
