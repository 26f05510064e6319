"""The kind of a sweep's process: launcher, leader, agent, fork server, rank, daemon, srun, slurmstepd."""

import contextlib
import os
import time
from collections.abc import Iterator

import psutil

from tests.support import driving
from tests.support.slurm import processes

LOCAL = ("launcher", "leader", "agent", "fork server", "rank")
SLURM = (*LOCAL, "srun", "slurmstepd of agents", "slurmstepd of the leader")


def find(kind, directory, launcher, cluster=None) -> list[psutil.Process]:
    """The live processes of that kind. ``launcher``: the Popen that was started."""
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
    """agent, fork server, rank, daemon (leaked by a rank); None for anything else. A fork keeps its command line."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        words = process.cmdline()
        if process.name() == "srun":
            return None
        if "sweep.pilot.agent" in words:
            return "agent"
        if "sweep.pilot.agent.fork_server" in words:
            return _image_kind(process)
    return None


def _image_kind(process: psutil.Process) -> str:
    """A fork server stays in its agent's session, a rank leads one, a daemon's has no leader or another."""
    parent = process.parent()
    if parent is not None and "sweep.pilot.agent.fork_server" in parent.cmdline():
        return "rank" if os.getsid(process.pid) == process.pid else "daemon"
    if parent is not None and os.getsid(process.pid) == os.getsid(parent.pid):
        return "fork server"
    return "daemon"


def leaking(batches, step_s):
    """A grid whose ranks each leak a daemon."""
    leaks = {"fault": "leak_child", "fault_iteration": 1, "fault_rank": -1, "fault_s": 900}
    keys = {"iterations": 4, "warmup_iterations": 2, "params": {"step_s": step_s, **leaks}}
    return driving.simulated({"poll_interval_s": 1, "max_pilots": 1}, nodes=2, micro_batch_size=batches, **keys)


RANKS = 4


def wait_for_daemons(kind, directory, launcher, cluster):
    """Wait until every rank has leaked a daemon and the targets exist; (processes to kill, of the attempt)."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if (directory / "provenance.json").exists():
            daemons = find("daemon", directory, launcher, cluster)
            found = find(kind, directory, launcher, cluster)
            if len(daemons) >= RANKS and found:
                ranks = find("rank", directory, launcher, cluster)
                with contextlib.suppress(ProcessLookupError):  # one has ended
                    sessions = {os.getsid(process.pid) for process in daemons}
                    assert sessions.isdisjoint(rank.pid for rank in ranks), "a daemon has left its rank's session"
                return found, [*daemons, *ranks]
        time.sleep(0.05)
    raise AssertionError(f"no {kind} next to daemons of all ranks: {driving.marked_processes(directory)}")
