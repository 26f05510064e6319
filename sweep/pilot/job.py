"""The pilot's own Slurm job: its CPUs, and ending it where Slurm itself would not notice. Programs that it asks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from bench_workloads.checks.reading import answer

CANCEL_S = 20.0
"""for a client of Slurm: twice its default MessageTimeout (10 s)"""


def all_cpus(environment: Mapping[str, str]) -> list[str]:
    """Srun's option for one task per node with all of its CPUs; none where the job's nodes differ.

    SLURM_JOB_CPUS_PER_NODE is such as "8(x3),4". One number would be too many for some nodes, which fail to start, or
    too few for others. Without the option a step has all CPUs of each of its nodes (Slurm 21.08 and later, unless
    --exact is given, which --cpus-per-task implies from 23.11 on).
    """
    counts = re.sub(r"\(x\d+\)", "", environment.get("SLURM_JOB_CPUS_PER_NODE", "")).split(",")
    cpus = environment.get("SLURM_CPUS_ON_NODE")
    return [f"--cpus-per-task={cpus}"] if cpus and len(set(counts)) == 1 else []


def shown_topology() -> str:
    """What the controller says of the cluster's topology; empty without an answer."""
    return _output("scontrol", "show", "topology")


def cancel_own_job() -> None:
    """End the job that this process is part of, if any; without effect where the scheduler does not answer."""
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        answer(["scancel", job], CANCEL_S)


def has_node(node: str) -> bool | None:
    """Whether this process's job still has the node, by the scheduler; None where it does not say.

    An answer counts if it is about this job and complete: an empty one is no answer.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if not job or not node:
        return None
    shown = _output("squeue", "--noheader", f"--jobs={job}", "--states=all", "--format=%i %N end")
    if (found := re.search(rf"^{re.escape(job)} (\S+) end$", shown, re.MULTILINE)) is None:
        return None
    nodes = _output("scontrol", "show", "hostnames", found[1]).split()
    return node in nodes if nodes else None


def node_state(node: str) -> str | None:
    """The node's state in sinfo's long form; None where Slurm does not say."""
    shown = _output("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%N %T end")
    found = re.search(rf"^{re.escape(node)} (\S+) end$", shown, re.MULTILINE)
    return found[1] if found is not None else None


def _output(*command: str) -> str:
    """What a client of Slurm prints, whatever its exit code: an agent may reap it first."""
    return answer(command, CANCEL_S, fails=True)


async def outputs_of(command: Sequence[str], limit_s: float) -> tuple[str, str]:
    """What the command prints on its two outputs. If it fails, or takes longer, the second says why."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        return "", str(error)
    try:
        outputs = await asyncio.wait_for(process.communicate(), limit_s)
    except asyncio.TimeoutError:
        return "", f"no answer in {limit_s:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    output, errors = (data.decode(errors="replace").strip() for data in outputs)
    return output, errors
