"""A real Slurm cluster on this machine: munged, slurmdbd on MariaDB, slurmctld, a slurmd per virtual node.

For tests: ``with Cluster(nodes=8) as cluster: cluster.run("sbatch", ...)``.
``SLURM_PREFIX`` names another Slurm than the installed one, such as one built by ``build_slurm.sh``.
Interactively: ``python -m tests.support.slurm.cluster 8`` is a shell on one of 8 nodes, which ends with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psutil

from tests.support.paths import REPOSITORY
from tests.support.slurm import processes
from tests.support.slurm.config import Ports, Shape, cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf
from tests.support.slurm.services import (
    ClusterError,
    PortSlot,
    clients_path,
    ensure_munged,
    listens,
    missing_programs,
    program,
    slurm_version,
    spawn,
    tail,
    wait_until,
)

if TYPE_CHECKING:
    import pytest  # this file also runs without it

_PREFIX = "sweep-slurm-"


class Cluster:
    """A cluster of virtual nodes n1, n2, ... on this machine. Needs root. Several can run at once."""

    def __init__(
        self,
        *,
        start_timeout_s: float = 60,
        own_processes: bool = False,
        **shape: Any,
    ) -> None:
        """``own_processes``: each node has a process namespace and sees no other node's processes, as real nodes do.

        ``shape``: the values of ``Shape`` that differ from its defaults.
        """
        self.shape = Shape(**shape)
        self._start_timeout_s = start_timeout_s
        self._enter = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if own_processes else []
        self._children: list[subprocess.Popen[bytes]] = []
        self._slot: PortSlot | None = None
        self.state = Path()

    @property
    def conf(self) -> Path:
        """The cluster's slurm.conf, which SLURM_CONF names."""
        return self.state / "slurm.conf"

    @property
    def env(self) -> dict[str, str]:
        """The environment for processes that use this cluster and no other."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH", "SALLOC", "SRUN"))}
        path = os.pathsep.join(part for part in (str(REPOSITORY), plain.get("PYTHONPATH")) if part)
        return {**plain, "SLURM_CONF": str(self.conf), "PYTHONPATH": path, "PATH": clients_path(plain)}

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Start everything; return once all nodes are idle. A failure shows the logs and leaves nothing."""
        if reason := unavailable(self.shape.accounting):
            raise ClusterError(reason)
        remove_abandoned()
        ensure_munged()
        self._slot = PortSlot()
        self.state = Path(tempfile.mkdtemp(prefix=_PREFIX))
        (self.state / "owner").write_text(str(os.getpid()))
        try:
            self._write_files(Ports(self._slot.first))
            if self.shape.accounting:
                self._start_mariadb()
                self.start_slurmdbd()
            self.start_slurmctld(clean=True)
            for node in self.shape.node_names:
                self.start_slurmd(node)
            self._wait("all nodes idle", self._all_idle)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End every process of the cluster, including those of jobs, and remove its files. Safe to call twice."""
        if self.state != Path():
            tear_down(self.state)
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=5)
        self._children.clear()
        if self._slot is not None:
            self._slot.close()
            self._slot = None

    # --- operations for tests

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make this process and its children use this cluster and no other, until the test ends."""
        mine = self.env  # before SLURM_PREFIX, which it reads, is taken away
        for name in set(os.environ) - set(mine):
            monkeypatch.delenv(name)
        for name in ("SLURM_CONF", "PYTHONPATH", "PATH"):
            monkeypatch.setenv(name, mine[name])

    def run(self, *argv: str, timeout_s: float = 60, check: bool = True) -> str:
        """A client command's standard output; ClusterError with its standard error where it fails."""
        done = subprocess.run(argv, capture_output=True, text=True, env=self.env, timeout=timeout_s, cwd=self.state)
        if check and done.returncode:
            raise ClusterError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def squeue(self) -> dict[str, dict[str, str]]:
        """job id -> name, state, reason, nodes; of all jobs still in slurmctld's memory."""
        lines = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%i|%j|%T|%r|%N").splitlines()
        rows = (line.split("|") for line in lines)
        return {row[0]: dict(zip(("name", "state", "reason", "nodes"), row[1:], strict=True)) for row in rows}

    def sacct(self) -> list[dict[str, str]]:
        """Rows of sacct over all jobs and steps: JobID, JobName, State, ExitCode, NodeList."""
        fields = ("JobID", "JobName", "State", "ExitCode", "NodeList")
        command = ("sacct", "-a", "-n", "-P", "-D", "-S", "now-1days", "-o", ",".join(fields))
        return [dict(zip(fields, line.split("|"), strict=True)) for line in self.run(*command).splitlines()]

    def node_states(self) -> dict[str, str]:
        """node -> its state in sinfo's long form."""
        lines = self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def drain(self, node: str, reason: str = "test") -> None:
        """Take no new job on the node."""
        self.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        """Back into service after a drain or a failure."""
        self.run("scontrol", "update", f"nodename={node}", "state=resume")

    def cancel_all(self) -> None:
        """scancel every job."""
        self.run("scancel", "--partition=main", check=False)

    def wait_idle(self, timeout_s: float = 60) -> None:
        """Until no job is left and every node that is not down or drained is idle."""
        self._wait("no job left", self._quiet, timeout_s)

    def job_processes(self, node: str | None = None) -> list[psutil.Process]:
        """Processes of jobs, with any parent."""
        return processes.job_processes(self.conf, node)

    def logs(self, lines: int = 15) -> str:
        """The tails of all logs of the cluster."""
        folder = self.state / "log"
        # A daemon's .out repeats its .log, except where it died before it opened one.
        files = [p for p in sorted(folder.glob("*")) if p.suffix == ".log" or not p.with_suffix(".log").exists()]
        return "\n".join(tail(path, lines) for path in files)

    # --- faults

    def kill_slurmd(self, node: str) -> None:
        """kill -9 of the node's slurmd alone; its steps keep running."""
        processes.end(processes.daemons(self.conf, "slurmd", node))

    def kill_node(self, node: str) -> None:
        """The node fails: slurmd, step daemons and all processes of jobs on it, at once."""
        steps = processes.daemons(self.conf, "slurmstepd", node)
        dead = [*processes.daemons(self.conf, "slurmd", node), *steps]
        processes.end([*dead, *processes.descendants(dead), *self.job_processes(node)])

    def start_slurmd(self, node: str) -> None:
        """Start the node's slurmd (again)."""
        log = self.state / "log" / f"slurmd.{node}.out"
        self._spawn([*self._enter, program("slurmd"), "-D", "-N", node, "-f", str(self.conf)], log)

    def stop_slurmctld(self) -> None:
        """The controller stops: clients say "Unable to contact slurm controller"."""
        processes.end(processes.daemons(self.conf, "slurmctld"), grace_s=10)

    def start_slurmctld(self, *, clean: bool = False) -> None:
        """Start the controller (again), with its state unless clean."""
        argv = [program("slurmctld"), "-D", "-f", str(self.conf), *(["-c"] if clean else [])]
        self._spawn(argv, self.state / "log" / "slurmctld.out")
        self._wait("slurmctld answers", lambda: "is UP" in self.run("scontrol", "ping", check=False))

    @contextlib.contextmanager
    def slurmctld_frozen(self) -> Iterator[None]:
        """The controller takes connections but answers none (SIGSTOP)."""
        frozen = processes.daemons(self.conf, "slurmctld")
        for process in frozen:
            process.suspend()
        try:
            yield
        finally:
            for process in frozen:
                process.resume()

    def forget_jobs(self) -> None:
        """Start a stopped controller with a clean state: as for jobs older than MinJobAge, at once."""
        self.start_slurmctld(clean=True)
        self._wait("all nodes idle", self._all_idle)

    def limit_user(self, limit: str) -> None:
        """Accounts and a user for root, and a limit on its QOS (AccountingStorageEnforce must be set)."""
        for command in (
            ("add", "account", "root"),
            ("add", "user", "root", "account=root"),
            ("modify", "qos", "normal", "set", limit),
        ):
            self._succeeds("sacctmgr", "-i", *command)

    def stop_slurmdbd(self) -> None:
        """Accounting stops: sacct fails, jobs keep running."""
        processes.end(processes.daemons(self.conf, "slurmdbd"), grace_s=10)

    def start_slurmdbd(self) -> None:
        """Start accounting (again)."""
        self._spawn([program("slurmdbd"), "-D"], self.state / "log" / "slurmdbd.out")
        assert self._slot is not None
        ports = Ports(self._slot.first)
        self._wait("slurmdbd listens", lambda: listens(ports.slurmdbd))
        add = ("sacctmgr", "-i", "add", "cluster", f"sweep{ports.first}")
        self._wait("slurmdbd has the cluster", lambda: self._succeeds(*add))

    # --- inside

    def _write_files(self, ports: Ports) -> None:
        host = socket.gethostname().split(".")[0]
        for folder in ("ctld", "spool", "run", "log", "dev"):
            (self.state / folder).mkdir()
        self.state.chmod(0o755)  # mkdtemp gives 0700: jobs of other users read slurm.conf too
        for i in range(self.shape.gpus_per_node):
            os.mknod(self.state / "dev" / f"gpu{i}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        for node in self.shape.node_names:
            (self.state / "spool" / node).mkdir()
        (self.state / "gres.conf").write_text(gres_conf(self.shape, self.state / "dev"))
        (self.state / "cgroup.conf").write_text(cgroup_conf(slurm_version()))
        if self.shape.topology:
            (self.state / "topology.conf").write_text(self.shape.topology)
        slurmdbd = self.state / "slurmdbd.conf"
        slurmdbd.touch(mode=0o600)
        slurmdbd.write_text(slurmdbd_conf(self.shape, ports, self.state, host))
        self.conf.write_text(slurm_conf(self.shape, ports, self.state, host))

    def _start_mariadb(self) -> None:
        assert self._slot is not None
        ports, data = Ports(self._slot.first), self.state / "db"
        install = [
            program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={data}",
            "--user=root",
            "--skip-test-db",
            f"--tmpdir={self.state}/run",  # clusters that start together collide in temporary tables
        ]
        self.run(*install, "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M")
        argv = [program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={self.state}/run/db"]
        argv += [
            f"--tmpdir={self.state}/run",
            f"--port={ports.mariadb}",
            "--bind-address=127.0.0.1",
            "--user=root",
            "--skip-grant-tables",
        ]
        argv += [f"--pid-file={self.state}/run/db.pid", "--skip-networking=0", "--innodb-buffer-pool-size=32M"]
        argv += ["--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF"]
        self._spawn(argv, self.state / "log" / "mariadb.log")
        self._wait("MariaDB listens", lambda: listens(ports.mariadb))

    def _spawn(self, argv: list[str], log: Path) -> None:
        self._children.append(spawn(argv, log, self.env))

    def _wait(self, what: str, condition: object, timeout_s: float | None = None) -> None:
        assert callable(condition)
        limit = self._start_timeout_s if timeout_s is None else timeout_s
        if not wait_until(condition, limit):
            raise ClusterError(f"{what}: not within {limit:.0f} s\n{self._state_text()}\n{self.logs()}")

    def _state_text(self) -> str:
        with contextlib.suppress(ClusterError, subprocess.TimeoutExpired):
            return self.run("sinfo", "-N", timeout_s=10) + self.run("squeue", "-t", "all", timeout_s=10)
        return "slurmctld does not answer"

    def _succeeds(self, *argv: str) -> bool:
        done = subprocess.run(argv, capture_output=True, text=True, env=self.env)
        return done.returncode == 0 or "already exists" in done.stdout + done.stderr

    def _all_idle(self) -> bool:
        states = self.node_states()
        return len(states) == self.shape.nodes and set(states.values()) == {"idle"}

    def _quiet(self) -> bool:
        busy = {"allocated", "mixed", "completing", "allocated*", "mixed*", "completing*"}
        jobs = self.run("squeue", "-h", "-o", "%i").split()
        return not jobs and not busy & set(self.node_states().values())


def unavailable(accounting: bool = True) -> str:
    """Why no cluster can be started on this machine, or None."""
    if missing := missing_programs(accounting):
        return f"real Slurm is not installed ({', '.join(missing)})"
    if os.geteuid() != 0:
        return "a Slurm cluster on one machine needs root"
    return ""


def tear_down(state: Path) -> None:
    """End every process of the cluster with that state directory, then remove it. Raises if one survives."""
    conf = state / "slurm.conf"
    # Controller and node daemons first, so that nothing new starts; then what their jobs left; the database last.
    heads = processes.daemons(conf, "slurmctld") + processes.daemons(conf, "slurmd")
    processes.end(heads, grace_s=2)
    steps = processes.daemons(conf, "slurmstepd")
    processes.end([*steps, *processes.descendants(steps), *processes.job_processes(conf)])
    processes.end(processes.daemons(conf, "slurmdbd"), grace_s=3)
    processes.end(processes.daemons(conf), grace_s=3)
    left = [*processes.daemons(conf), *processes.job_processes(conf)]
    if left:
        raise ClusterError(f"processes of {state} survived SIGKILL: {left}")
    shutil.rmtree(state, ignore_errors=True)


def remove_abandoned() -> None:
    """Tear down clusters whose owner (a test process) was killed."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/owner"):
        with contextlib.suppress(ValueError, OSError):
            if not psutil.pid_exists(int(owner.read_text())):
                tear_down(owner.parent)


if __name__ == "__main__":
    with Cluster(nodes=int(sys.argv[1])) as started:
        subprocess.run([os.environ.get("SHELL", "/bin/sh")], env=started.env)
