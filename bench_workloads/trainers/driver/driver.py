"""A rank that lets another's trainer do the work: writes the configuration, starts the command, reads what it prints.

The rank process itself stays: it beats whenever the trainer tells of an iteration, gives the measurement, ends the
trainer once it has what it needs, and ends as the trainer ended where it has not.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import signal
import subprocess
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench_workloads.trainers.adapter import Adapter, Launch, Said, from_here
from bench_workloads.trainers.driver import gathering
from bench_workloads.trainers.driver.exchange import Exchange
from bench_workloads.trainers.driver.gathering import Gathered
from bench_workloads.trainers.driver.reading import Lines
from bench_workloads.trainers.driver.starting import command, interpreter, stop
from sweep.contract import Measurement, Phase, Progress, RankRun

GRACE_S = 4.0
"""for a trainer that was to end by itself; then SIGTERM"""
TERM_S = 4.0
"""after SIGTERM; then SIGKILL"""
SETTLE_S = 3.0
"""for what other ranks may still tell, once the own trainer ended"""
STEADY_FACTOR = 5.0
"""where a line stands for many iterations, the next one is due after so many times its own length"""
_READ = 1 << 16
_VERSION = "import importlib.metadata as m; print(m.version({!r}))"


class TrainerEndedError(RuntimeError):
    """The trainer ended well, but told too little."""


def drive(adapter: Adapter, run: RankRun, progress: Progress) -> None:
    """Be one rank of a trainer's run. The body of every adapter's ``main``."""
    progress.beat(Phase.START)
    driver = _Driver(adapter, run, progress)
    try:
        driver.start()
        driver.follow()
        driver.tell()
    finally:
        driver.close()


class _Driver:
    """One rank's hold on its trainer."""

    def __init__(self, adapter: Adapter, run: RankRun, progress: Progress) -> None:
        self._adapter = adapter
        self._run = run
        self._progress = progress
        self._selector = selectors.DefaultSelector()
        self._exchange = Exchange.join(run.place, self._selector)
        self._reader = adapter.reader(run)
        self._lines = Lines()
        self._speakers: dict[int, Gathered] = {}
        self._child: subprocess.Popen[bytes] | None = None
        self._heard = -1
        self._last: deque[str] = deque(maxlen=400)
        self._begun_at = time.monotonic()
        self._marks: dict[str, float] = {}

    def start(self) -> None:
        """Write the configuration and start the command, where this rank is one that starts it."""
        place, settings = self._run.place, {**self._adapter.workload.params, **self._run.params}
        launch_once = settings["start"] == "node"
        if launch_once and place.local_rank:
            return
        directory = Path(place.scratch_dir or ".") / f"trainer{place.rank}"
        directory.mkdir(parents=True, exist_ok=True)
        launch = self._adapter.configure(from_here(self._run, settings), str(directory), self._steps())
        for name, text in launch.files.items():
            (directory / name).write_text(text)
        words = command(launch, place, self._exchange.port, settings)
        environment = {**os.environ, **self._environment(launch, launch_once)}
        self._say("$ " + shlex.join(words))
        self._child = subprocess.Popen(
            words,
            cwd=str(settings["workdir"] or launch.workdir or directory),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._child.stdout is not None
        self._selector.register(self._child.stdout, selectors.EVENT_READ, None)

    def follow(self) -> None:
        """Read until the measurement is whole. Ends as the trainer ends where that comes first."""
        while self._chosen() is None:
            if self._over():
                # What others tell from now on does not count for a rank whose trainer failed.
                self._drain(0.0 if self._failed() else SETTLE_S)
                if self._chosen() is None:
                    self._give_up()
                return
            self._once(0.5)

    def tell(self) -> None:
        """Give the measurement, then end the trainer."""
        self._progress.measured(self._measurement())
        self._progress.beat(Phase.FINISH)
        self._drain_child(GRACE_S)
        stop(self._child, TERM_S)

    def close(self) -> None:
        """Leave nothing of the trainer, whatever happened."""
        stop(self._child, TERM_S)
        self._exchange.close()

    def _steps(self) -> int:
        """One more than is timed: the first's length is often unknown, and the end is never in a timed one."""
        return self._run.warmup_iterations + self._run.iterations + 1

    def _environment(self, launch: Launch, once: bool) -> dict[str, str]:
        """Unbuffered, and on the trainer's own port. torchrun sets what belongs to a rank by itself."""
        place = self._run.place
        several = place.local_world_size > 1
        threads = {} if "OMP_NUM_THREADS" in os.environ or not several else {"OMP_NUM_THREADS": "1"}
        own = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "MASTER_PORT": str(self._exchange.port), **threads}
        of_rank = {} if once else replace(place, master_port=self._exchange.port).torchrun_variables()
        return {**own, **of_rank, **launch.env}

    def _over(self) -> bool:
        """Nothing more can come of the own trainer, or, where another rank of the node runs it, of that one."""
        if self._child is None:
            return not self._exchange.connected
        return self._child.poll() is not None

    def _once(self, timeout_s: float) -> bool:
        """Take what is there, or wait for it. False where nothing came."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            if key.data is None:
                self._read_child()
            else:
                for message in self._exchange.receive(key.fileobj):
                    self._take(message)
        return bool(ready)

    def _read_child(self) -> bool:
        """Take a piece of output. False at its end."""
        assert self._child is not None
        assert self._child.stdout is not None
        data = os.read(self._child.stdout.fileno(), _READ)
        if not data:
            self._selector.unregister(self._child.stdout)
        else:
            with contextlib.suppress(OSError):  # a full disk must not hide what the trainer says
                os.write(1, data)
        at_s = time.monotonic()
        for line, line_at_s in self._lines.timed(data, at_s):
            self._last.append(line)
            for said in self._reader.read(line):
                self._hear(self._run.place.rank, said, line_at_s)
                self._exchange.send(_message(self._run.place.rank, said, line_at_s))
        return bool(data)

    def _take(self, message: Any) -> None:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            said = Said(
                iteration=message["iteration"],
                values=message["values"],
                effective=message["effective"],
                begun=message["begun"],
            )
            self._hear(int(message["rank"]), said, float(message["at_s"]))

    def _hear(self, rank: int, said: Said, at_s: float) -> None:
        gathered = self._speakers.setdefault(rank, Gathered(self._run.warmup_iterations, self._run.iterations))
        news = gathered.add(said, at_s)
        if said.begun and self._heard < 0:
            self._progress.beat(Phase.FIRST_ITERATION, 0)
        if news and (count := gathered.count()) > self._heard:
            if self._heard < 0:
                self._marks["first_iteration_told"] = time.monotonic() - self._begun_at
            self._heard = count
            self._progress.beat(Phase.STEADY, count, due_s=self._due_s(gathered))

    def _due_s(self, gathered: Gathered) -> float | None:
        """Where lines are far apart, when the next one is due; the watcher knows iterations only."""
        if gathered.printed_every == 1 or len(gathered.entries) < 2:
            return None
        last, before = gathered.entries[-1], gathered.entries[-2]
        return STEADY_FACTOR * (last.at_s - before.at_s)

    def _chosen(self) -> Gathered | None:
        """Whose words count for this rank: its own where it tells of iterations, else the lowest that is done."""
        own = self._speakers.get(self._run.place.rank)
        if own is not None and own.entries and not self._over():
            return own if own.done else None
        done = [self._speakers[rank] for rank in sorted(self._speakers) if self._speakers[rank].done]
        return own if own is not None and own.done else next(iter(done), None)

    def _measurement(self) -> Measurement:
        chosen = self._chosen()
        assert chosen is not None
        own = self._speakers.get(self._run.place.rank) or Gathered(0, 0)
        allocated, reserved = own.greatest("allocated_bytes"), own.greatest("reserved_bytes")
        effective: dict[str, Any] = {}
        for rank in sorted(self._speakers, reverse=True):
            effective |= self._speakers[rank].effective
        compared = gathering.compare(self._run, chosen, self._adapter.convention)
        return Measurement(
            step_times_s=chosen.timed_s(),
            warmup_times_s=chosen.warm_s(),
            peak_allocated_bytes=int(allocated) if allocated else None,
            peak_reserved_bytes=int(reserved) if reserved else None,
            memory_kind="the greatest that the trainer printed",
            # One rank's word: what others passed on may be a line older, and ranks may print losses of their own rows.
            losses=None if self._run.place.rank else chosen.series("loss"),
            grad_norms=None if self._run.place.rank else chosen.series("grad_norm"),
            versions=self._versions(),
            phases_s=self._marks,
            effective=effective | own.effective,
            extra={"trainer": compared, "notes": gathering.notes(compared, chosen)},
        )

    def _versions(self) -> dict[str, str]:
        """Of the trainer and its torch, asked of its own interpreter; by rank 0 alone."""
        if self._run.place.rank or self._child is None:
            return {}
        settings = {**self._adapter.workload.params, **self._run.params}
        found = {}
        for package in filter(None, ("torch", self._adapter.package)):
            words = [*shlex.split(str(settings["prefix"])), interpreter(settings), "-c", _VERSION.format(package)]
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(words, capture_output=True, text=True, timeout=5, check=True)
                found[package] = done.stdout.strip().splitlines()[-1]
        return found

    def _drain(self, seconds: float) -> None:
        """Read the own trainer's words to their end, then those of others for so long."""
        own = self._child.stdout if self._child is not None else None
        deadline = time.monotonic() + SETTLE_S
        while own is not None and self._reads(own) and time.monotonic() < deadline:
            if not self._once(0.1) and self._failed():
                break  # a process that it left holds the pipe open
        deadline = time.monotonic() + seconds
        while self._chosen() is None and time.monotonic() < deadline and self._selector.get_map():
            self._once(0.1)

    def _failed(self) -> bool:
        return self._child is not None and bool(self._child.poll())

    def _reads(self, file: object) -> bool:
        return any(key.fileobj is file for key in self._selector.get_map().values())

    def _drain_child(self, seconds: float) -> None:
        """Read on until the trainer ended: a full pipe would keep it from ending."""
        deadline = time.monotonic() + seconds
        while self._child is not None and self._child.poll() is None and time.monotonic() < deadline:
            self._once(0.1)

    def _give_up(self) -> None:
        """End as the trainer did."""
        code = self._child.poll() if self._child is not None else 0
        for hint in self._adapter.hints:
            if code and any(_found(hint.pattern, line) for line in self._last):
                self._say(f"hint: {hint.text}")
        if code is None or code == 0:
            told = max((g.count() for g in self._speakers.values()), default=0)
            needed = self._run.warmup_iterations + self._run.iterations
            raise TrainerEndedError(
                f"{self._adapter.name} ended without error, but told of {told} iterations; {needed} were to be measured"
            )
        if code < 0:
            signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
            os.kill(os.getpid(), -code)
        raise SystemExit(code)

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(1, f"[sweep] {text}\n".encode())


def _message(rank: int, said: Said, at_s: float) -> dict[str, Any]:
    told = {"iteration": said.iteration, "values": dict(said.values), "effective": dict(said.effective)}
    return {"rank": rank, **told, "begun": said.begun, "at_s": at_s}


def _found(text: str, line: str) -> bool:
    return re.search(text, line) is not None
