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


CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "TORCH_EXTENSIONS_DIR": "extensions",
}
"""Where torch and triton store what they compile. By default in the home directory: on a shared file system, with lock
files that outlive killed ranks, so that the next build waits indefinitely (torch.utils.cpp_extension's FileBaton)"""


def cache_directories(scratch: str) -> dict[str, str]:
    """Directories for compiled code on the node, for all runs of a pilot."""
    return {name: f"{scratch}/{folder}" for name, folder in CACHES.items()}
