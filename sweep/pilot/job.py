"""The pilot's own Slurm job: ending it where Slurm itself would not notice."""

from __future__ import annotations

import contextlib
import os
import subprocess

CANCEL_S = 20.0


def cancel_own_job() -> None:
    """End the job that this process is part of, if any; without effect where the scheduler does not answer."""
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["scancel", job], timeout=CANCEL_S, check=False)


class StepDaemon:
    """The slurmstepd above the batch script. Without it Slurm does not learn that the script ended: the job would stay
    RUNNING, with its nodes, until the node registers again (after 107 s on Slurm 22.05 with a SlurmdTimeout of 20 s).
    """

    def __init__(self) -> None:
        self._pid = os.getppid()

    @property
    def died(self) -> bool:
        """Has our parent process changed?"""
        return os.getppid() != self._pid


def has_node(node: str) -> bool | None:
    """Whether this process's job still has the node, by the scheduler; None where it does not say."""
    job = os.environ.get("SLURM_JOB_ID")
    if not job or not node:
        return None
    command = ["squeue", "--noheader", f"--jobs={job}", f"--nodelist={node}", "--states=all", "--format=%i"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CANCEL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):  # compute nodes may lack Slurm's clients
        return None
    return None if done.returncode else bool(done.stdout.strip())
