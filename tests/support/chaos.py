"""Random faults of a cluster at once, while a sweep runs: processes, jobs, nodes, network, scheduler, journals.

Reproducible as far as processes of a real machine are: the seed decides which fault comes when, and not what it hits.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK
from sweep.state.events import PilotEnded
from tests.support import driving
from tests.support.cut_network import CutNetwork
from tests.support.login_host import LoginHost
from tests.support.lying_slurm import CLIENTS, LIES, LyingSlurm
from tests.support.process_kinds import find
from tests.support.slurm.cluster import Cluster

AWAY_S = 0.5, 3.0
"""how long the sweep directory is away: an automounter, a failover"""
BAD_SHARE = 0.25
"""of the nodes: once so many are excluded the user releases them, as after a repair"""


@dataclass
class Chaos:
    """The faults, and what they hit."""

    directory: Path
    cluster: Cluster
    network: CutNetwork
    """of the agent on ``cut_node``"""
    cut_node: str
    hosts: tuple[LoginHost, ...]
    lying: LyingSlurm
    """the clients of launchers and pilots"""
    chance: random.Random
    faults: tuple[Callable[[Chaos], bool], ...]
    longest_s: float = 20.0
    """how long a fault that passes may last"""
    late_s: float = 20.0
    """how late an answer of the scheduler is that is late"""
    most_jobs: int = 0
    """pilots at once, as the scheduler knew it"""
    done: Counter[str] = field(default_factory=Counter)
    """fault -> how often it hit something"""
    hit_nodes: set[str] = field(default_factory=set)
    """nodes that a fault may have made look bad"""
    killed_runs: set[str] = field(default_factory=set)
    """runs of which a rank was killed: once each, since a second time counts against the run"""
    _later: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _held: set[str] = field(default_factory=set)
    """what is away for a while: nodes, jobs, services"""

    def launch(self, grid: Path, seconds: float, limit_s: float, pauses_s: tuple[float, float]) -> None:
        """Launch the sweep, do faults for some seconds, mend all, and wait for the sweep's end."""
        began = time.monotonic()
        with Path(f"{self.directory}.out").open("ab") as self._output:
            self._start("launch", grid, "--dir", self.directory, "--executor", "slurm", "--yes")
            driving.wait_for(lambda: driving.running_attempt(self.directory), 120)
            faults_begin = time.monotonic()
            while time.monotonic() - faults_begin < seconds and self.launcher.poll() != 0:
                fault = self.chance.choice(self.faults)
                self.done[fault.__name__] += fault(self)
                self._mend_due(time.monotonic())
                self._keep_launcher()
                self._release_nodes()
                self._count_jobs()
                time.sleep(self.chance.uniform(*pauses_s))
            self._mend_due(float("inf"))
            while self.launcher.poll() != 0 and time.monotonic() - began < limit_s:
                self._mend_due(float("inf"))
                self._keep_launcher()
                self._release_nodes()
                self._count_jobs()
                time.sleep(0.5)
        assert self.launcher.poll() == 0, self.output()[-4000:]

    def output(self) -> str:
        """What the launchers wrote."""
        return Path(f"{self.directory}.out").read_text()

    def end(self) -> None:
        """Mend all that is not, whatever happened."""
        self._mend_due(float("inf"))
        if self.launcher.poll() is None:
            self.launcher.kill()

    # --- the launcher, on one of the login hosts

    def _start(self, *words: object, host: LoginHost | None = None) -> None:
        self.host = host or self.chance.choice(self.hosts)
        self.launcher = driving.start(*words, env=self.host.env, prefix=self.host.prefix, output=self._output)

    def _keep_launcher(self) -> None:
        """The user resumes the sweep where its launcher is gone, on any login host."""
        if self.launcher.poll() not in (None, 0):
            self._start("resume", self.directory, "--takeover")

    def _release_nodes(self) -> None:
        bad = driving.state_of(self.directory).excluded_nodes
        if len(bad) > BAD_SHARE * self.cluster.shape.nodes:
            driving.run("nodes", self.directory, "release", *bad, env=self.cluster.env)
            self.done["nodes cleared"] += 1

    def _count_jobs(self) -> None:
        """A pilot that wrote its end is none any more: its job takes a while to leave a busy scheduler."""
        if "controller" in self._held:
            return
        living = [
            job["name"].rpartition("-")[2]
            for job in self.cluster.squeue().values()
            if job["name"].startswith("chaos-") and job["state"] in ("PENDING", "RUNNING", "SUSPENDED")
        ]
        if len(living) > self.most_jobs:
            ended = {event.pilot for event in driving.events_of(self.directory, PilotEnded)}
            self.most_jobs = max(self.most_jobs, len(set(living) - ended))

    # --- what passes

    def _hold(self, what: str, begin: Callable[[], object], end: Callable[[], object]) -> bool:
        """Begin something that passes by itself, unless it is so already."""
        if what in self._held:
            return False
        self._held.add(what)
        begin()
        until = time.monotonic() + self.chance.uniform(0.2, 1.0) * self.longest_s

        def mend() -> bool:
            if end() is False:
                return False
            self._held.discard(what)
            return True

        self._later.append((until, mend))
        return True

    def _mend_due(self, now: float) -> None:
        """An end that returns False did not succeed yet: it is tried again."""
        due = [one for one in self._later if one[0] <= now]
        self._later = [one for one in self._later if one[0] > now]
        self._later += [(until, act) for until, act in due if act() is False]

    # --- faults: each returns whether there was something to hit

    def _process(self, kind: str) -> psutil.Process | None:
        found = find(kind, self.directory, self.launcher)
        return self.chance.choice(found) if found else None

    def _job(self) -> str | None:
        if "controller" in self._held:
            return None
        running = [job for job, found in self.cluster.squeue().items() if found["state"] == "RUNNING"]
        return self.chance.choice(running) if running else None

    def _node_of(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.Error):
            self.hit_nodes.add(process.environ().get("SLURMD_NODENAME", ""))

    def kill_launcher(self) -> bool:
        if self.launcher.poll() is not None:
            return False
        self.launcher.kill()
        self.launcher.wait()
        return True

    def take_over(self) -> bool:
        """Another launcher takes over while the first lives: the first ends by itself."""
        first, self._before = self.launcher, self.host
        if first.poll() is not None or not (self.directory / "provenance.json").exists():
            return False
        others = [host for host in self.hosts if host is not self._before]
        self._start("resume", self.directory, "--takeover", host=self.chance.choice(others))
        until = time.monotonic() + 120
        while first.poll() is None and time.monotonic() < until:
            self._mend_due(time.monotonic())  # else it waits for each client of a controller that stays away
            if self.launcher.poll() is not None:  # it met stale files before it had taken over
                self._start("resume", self.directory, "--takeover", host=self.host)
            time.sleep(0.1)
        assert first.poll() is not None
        return True

    def kill_leader(self) -> bool:
        pids = driving.leader_pids(self.directory)
        return bool(pids) and driving.kill(self.chance.choice(pids))

    def kill_agent(self) -> bool:
        if (process := self._process("agent")) is None:
            return False
        self._node_of(process)
        return driving.kill(process.pid)

    def kill_rank(self) -> bool:
        if (process := self._process("rank")) is None:
            return False
        self._node_of(process)
        run_id = self._run_of(process)
        if run_id is None or run_id in self.killed_runs:
            return False
        self.killed_runs.add(run_id)
        return driving.kill(process.pid)

    def _run_of(self, rank: psutil.Process) -> str | None:
        """The run_id of what its pilot runs on its node. Attempts of pilots that died stay open for a while."""
        try:
            environment = rank.environ()
        except psutil.Error:
            return None
        node, token = (environment.get(name, "") for name in (NODE_MARK, PILOT_MARK))
        specs = (self.directory / "pilots").glob("*/job.json")
        pilot = next((path.parent.name for path in specs if token and token in path.read_text()), None)
        runs = driving.state_of(self.directory).runs.items()
        attempts = ((run_id, attempt) for run_id, run in runs for attempt in run.attempts.values())
        return next(
            (run_id for run_id, a in attempts if (a.outcome, a.pilot) == (None, pilot) and node in a.nodes), None
        )

    def stop_agent(self) -> bool:
        return self._stop("agent")

    def stop_leader(self) -> bool:
        return self._stop("leader")

    def _stop(self, kind: str) -> bool:
        """SIGSTOP, and later SIGCONT."""
        if (process := self._process(kind)) is None:
            return False

        def signal(act: Callable[[], None]) -> None:
            with contextlib.suppress(psutil.Error):
                act()

        return self._hold(f"{process.pid}", lambda: signal(process.suspend), lambda: signal(process.resume))

    def terminate_steps(self) -> bool:
        return self._scancel("-s", "TERM")

    def cancel_job(self) -> bool:
        return self._scancel()

    def _scancel(self, *options: str) -> bool:
        job = self._job()
        return job is not None and self._client("scancel", *options, job)

    def _client(self, *words: str) -> bool:
        return subprocess.run(words, env=self.cluster.env, check=False, capture_output=True).returncode == 0

    def suspend_job(self) -> bool:
        """One whose pilot has started: of those suspended within 0.1 s of their start Slurm 22.05 leaves one in twenty
        stopped for good, and says that they run.
        """
        job = self._job()
        pilots = driving.state_of(self.directory).pilots.values()
        if job is None or not any(pilot.job_id == job and pilot.started_at for pilot in pilots):
            return False
        return self._hold(job, lambda: self._client("scontrol", "suspend", job), lambda: self._resume_job(job))

    def _resume_job(self, job: str) -> bool:
        """Whether it is not suspended any more. It cannot be resumed while the controller is away."""
        if "controller" in self._held:
            return False
        self._client("scontrol", "resume", job)
        return self.cluster.squeue().get(job, {}).get("state") != "SUSPENDED"

    def cut_agent_off(self) -> bool:
        self.hit_nodes.add(self.cut_node)
        return self._hold("network", self.network.cut, self.network.mend)

    def kill_node(self) -> bool:
        """slurmd, step daemons and all processes of a node; it is back later."""
        node = self.chance.choice(self.cluster.shape.node_names)
        self.hit_nodes.add(node)
        return self._hold(node, lambda: self.cluster.kill_node(node), lambda: self.cluster.start_slurmd(node))

    def kill_slurmd(self) -> bool:
        node = self.chance.choice(self.cluster.shape.node_names)
        self.hit_nodes.add(node)
        return self._hold(node, lambda: self.cluster.kill_slurmd(node), lambda: self.cluster.start_slurmd(node))

    def stop_controller(self) -> bool:
        return self._hold("controller", self.cluster.stop_slurmctld, self.cluster.start_slurmctld)

    def lie(self) -> bool:
        """One client of the scheduler lies for a while."""
        client, lie = self.chance.choice(CLIENTS), self.chance.choice(LIES)
        begun = self._hold(client, lambda: self.lying.begin(client, lie, self.late_s), lambda: self.lying.end(client))
        self.done[f"{client} {lie}"] += begun
        return begun

    def stale_files(self) -> bool:
        """Accesses fail with ESTALE, and attributes are old."""
        flag = stale_flag(self.directory)
        return self._hold("files", lambda: flag.write_text(str(self.directory)), flag.unlink)

    def hide_directory(self) -> bool:
        """The sweep directory is away for seconds."""
        away = self.directory.with_name("away")
        self.directory.rename(away)
        time.sleep(self.chance.uniform(*AWAY_S))
        away.rename(self.directory)
        return True

    def damage_journal(self) -> bool:
        """What file systems do to a journal that is being written, without a loss of what is whole."""
        journal = self.chance.choice(sorted((self.directory / "journal").glob("*.jsonl")))
        lines = journal.read_bytes().splitlines()
        if not lines:
            return False
        line = self.chance.choice(lines)
        half = line[: self.chance.randrange(1, len(line))] if len(line) > 1 else line
        garbage = self.chance.randbytes(self.chance.randrange(1, 300)).replace(b"\n", b"?")
        damage = self.chance.choice([half, half + b"\n", garbage + b"\n", b"\0" * 64 + b"\n", line + b"\n"])
        with journal.open("ab") as file:
            file.write(damage)
        return True


def stale_flag(directory: Path) -> Path:
    """The file whose existence makes accesses to the sweep directory stale (``stale_files/sitecustomize.py``)."""
    return directory.with_name(f"{directory.name}.stale")


LIES_ONLY: tuple[Callable[[Chaos], bool], ...] = (Chaos.lie, Chaos.lie, Chaos.stale_files, Chaos.hide_directory)
QUICK: tuple[Callable[[Chaos], bool], ...] = (
    Chaos.kill_launcher,
    Chaos.take_over,
    Chaos.kill_leader,
    Chaos.kill_agent,
    Chaos.kill_rank,
    Chaos.stop_agent,
    Chaos.terminate_steps,
    Chaos.cancel_job,
    Chaos.suspend_job,
    Chaos.cut_agent_off,
    Chaos.damage_journal,
)
"""faults after which a sweep can go on at once"""
FAULTS = (*QUICK, *LIES_ONLY, Chaos.stop_leader, Chaos.kill_node, Chaos.kill_slurmd, Chaos.stop_controller)
