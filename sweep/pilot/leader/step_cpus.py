"""How srun gives an agent all CPUs of its node. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping


def all_cpus(environment: Mapping[str, str]) -> list[str]:
    """srun's option for one task per node with all of its CPUs; none where the job's nodes differ.

    SLURM_JOB_CPUS_PER_NODE is such as "8(x3),4". One number would be too many for some nodes, which fail to start, or
    too few for others. Without the option a step has all CPUs of each of its nodes (Slurm 21.08 and later, unless
    --exact is given, which --cpus-per-task implies from 23.11 on).
    """
    counts = re.sub(r"\(x\d+\)", "", environment.get("SLURM_JOB_CPUS_PER_NODE", "")).split(",")
    cpus = environment.get("SLURM_CPUS_ON_NODE")
    return [f"--cpus-per-task={cpus}"] if cpus and len(set(counts)) == 1 else []
