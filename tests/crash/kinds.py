"""Which processes of a sweep are of which kind: launcher, leader, agent, zygote, rank, daemon, srun, slurmstepd."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import psutil

from tests import driving
from tests.slurm import processes

LOCAL = ("launcher", "leader", "agent", "zygote", "rank")
SLURM = (*LOCAL, "srun", "slurmstepd of agents", "slurmstepd of the leader")


def find(kind, directory, launcher, cluster=None) -> list[psutil.Process]:
    """The living processes of that kind. ``launcher``: the Popen that was started."""
    if kind == "launcher":
        return [psutil.Process(launcher.pid)]
    if kind == "leader":
        return [psutil.Process(pid) for pid in driving.leader_pids(directory)]
    if kind == "srun":
        return [process for process in _marked(directory) if process.name() == "srun"]
    if kind.startswith("slurmstepd"):
        return _step_daemons(cluster, find(kind.rpartition(" ")[2].removesuffix("s"), directory, launcher))
    return [process for process in _marked(directory) if _python_kind(process) == kind]


def _step_daemons(cluster, under: list[psutil.Process]) -> list[psutil.Process]:
    """The step daemons above these processes."""
    wanted = {parent.pid for process in under for parent in process.parents()}
    return [process for process in processes.daemons(cluster.conf, "slurmstepd") if process.pid in wanted]


def _marked(directory) -> Iterator[psutil.Process]:
    for words in driving.marked_processes(directory):
        with contextlib.suppress(psutil.Error):
            yield psutil.Process(int(words.split()[0]))


def _python_kind(process: psutil.Process) -> str | None:
    """agent, zygote, rank, daemon (what a rank has let go); None for anything else. A fork keeps its command line."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        words = process.cmdline()
        if process.name() == "srun":
            return None
        if "sweep.pilot.agent" in words:
            return "agent"
        if "sweep.pilot.agent.zygote" in words:
            return _image_kind(process)
    return None


def _image_kind(process: psutil.Process) -> str:
    """A zygote stays in its agent's session, a rank leads one, a daemon's is without its leader or not a zygote's."""
    parent = process.parent()
    if parent is not None and "sweep.pilot.agent.zygote" in parent.cmdline():
        return "rank" if os.getsid(process.pid) == process.pid else "daemon"
    if parent is not None and os.getsid(process.pid) == os.getsid(parent.pid):
        return "zygote"
    return "daemon"
