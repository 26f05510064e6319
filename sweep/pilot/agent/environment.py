"""The environment that ranks inherit. Pure.

An agent is a task of its job step: its SLURM_*, PMI_* and PMIX_* variables describe the agents, one per node. A rank
that reads them (PyTorch Lightning, accelerate, mpi4py, JAX) takes the number of agents for its world size.
"""

from __future__ import annotations

from collections.abc import Mapping

TASK_PREFIXES = ("SLURM_", "PMI_", "PMI2_", "PMIX_")
OF_THE_JOB = frozenset({"SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF"})
"""what is the same for a rank: it identifies the job and locates Slurm"""


def inherited(agents: Mapping[str, str]) -> dict[str, str]:
    """An agent's environment without what describes it as a task."""
    return {name: value for name, value in agents.items() if name in OF_THE_JOB or not name.startswith(TASK_PREFIXES)}
