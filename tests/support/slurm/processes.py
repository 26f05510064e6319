"""Which processes belong to a cluster, and how to end them. Identified by their environment, never by name alone."""

import contextlib
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

DAEMONS = frozenset({"slurmctld", "slurmd", "slurmdbd", "slurmstepd", "mariadbd", "mysqld"})
_GONE = (psutil.Error, OSError)


def daemons(conf: Path, name: str | None = None, node: str | None = None) -> list[psutil.Process]:
    """The cluster's own processes (slurmctld, slurmd, slurmstepd, ...), of a kind or a node if asked."""
    found = []
    for process, _ in _with_conf(conf):
        with contextlib.suppress(*_GONE):
            kind = _kind(process)
            if kind not in DAEMONS or (name and kind != name):
                continue
            if node is None or _logs_of(process, node):
                found.append(process)
    return found


def job_processes(conf: Path, node: str | None = None) -> list[psutil.Process]:
    """Processes that run inside jobs of the cluster, also daemonised ones: they keep the environment."""
    return [
        process
        for process, environment in _with_conf(conf)
        if "SLURM_JOB_ID" in environment
        and (node is None or environment.get("SLURMD_NODENAME") == node)
        and not _is_daemon(process)
    ]


def end(processes: Iterable[psutil.Process], grace_s: float = 0.0) -> None:
    """SIGTERM where there is grace, then SIGKILL, and wait until they are gone (at most 10 s more)."""
    alive = list(processes)
    if grace_s:
        for process in alive:
            with contextlib.suppress(*_GONE):
                process.terminate()
        _, alive = psutil.wait_procs(alive, timeout=grace_s)
    for process in alive:
        with contextlib.suppress(*_GONE):
            process.kill()
    deadline = time.monotonic() + 10
    while any(lives(process) for process in alive) and time.monotonic() < deadline:
        time.sleep(0.05)


def descendants(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """All children, and theirs, of the processes."""
    found: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(*_GONE):
            found += process.children(recursive=True)
    return found


def _with_conf(conf: Path) -> list[tuple[psutil.Process, Mapping[str, str]]]:
    found: list[tuple[psutil.Process, Mapping[str, str]]] = []
    for process in psutil.process_iter():
        with contextlib.suppress(*_GONE):
            environment = _environment(process.pid)
            mine = environment.get("SLURM_CONF") == str(conf) or _steps_of(process, conf.parent)
            if mine and lives(process):
                found.append((process, environment))
    return found


def _steps_of(process: psutil.Process, state: Path) -> bool:
    """Whether it is a step daemon that writes a log of the cluster: that of Slurm 25.11 blanks all its environment."""
    if process.name() != "slurmstepd":
        return False
    return any(Path(file.path).is_relative_to(state) for file in process.open_files())


def _environment(pid: int) -> dict[str, str]:
    """psutil's environ() stops at an empty entry, and slurmstepd blanks the head of its own."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _kind(process: psutil.Process) -> str:
    """slurmd for Debian's slurmd-wlm."""
    return Path(process.exe()).name.removesuffix("-wlm")


def _is_daemon(process: psutil.Process) -> bool:
    with contextlib.suppress(*_GONE):
        return _kind(process) in DAEMONS
    return False


def _logs_of(process: psutil.Process, node: str) -> bool:
    """Whether slurmd or slurmstepd writes the node's log: this identifies the node of a step daemon."""
    return any(Path(file.path).name == f"slurmd.{node}.log" for file in process.open_files())


def lives(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie that its parent has not reaped does not."""
    with contextlib.suppress(*_GONE):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
