"""A rank that runs an external trainer: writes the configuration, starts the command, parses its output.

The rank process stays: it sends a heartbeat per reported iteration, sends the measurement, ends the
trainer once the measurement is complete, and otherwise ends with the trainer's exit status.
"""

from __future__ import annotations

import contextlib
import importlib
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

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.adapter import Adapter, Launch, ParsedLine, from_here, saving
from bench_workloads.trainers.driver.exchange import CONNECT_S, Exchange
from bench_workloads.trainers.driver.gathering import Gathered
from bench_workloads.trainers.driver.reading import Lines
from bench_workloads.trainers.driver.speakers import Speakers, Stopped
from bench_workloads.trainers.driver.starting import command, stop, versions
from sweep.contract import Phase, Progress, RankRun

GRACE_S = 4.0
"""for a trainer to end by itself; then SIGTERM"""
TERM_S = 4.0
"""after SIGTERM; then SIGKILL"""
LAST_LINES_S = 3.0
"""for late messages of other ranks, once the own trainer ended"""
STOPPED_S = 0.5
"""for rank 0's word that the run has lost, where the own trainer failed: the end of rank 0's may be why"""
SHOWN_LINES, SHOWN_OF_A_LINE = 3, 80
"""of a trainer's output in a message; characters of each"""
_READ = 1 << 16


class TrainerEndedError(RuntimeError):
    """The trainer ended without error, but reported too few iterations."""


def main(run: RankRun, progress: Progress) -> None:
    """One rank of a trainer of this package."""
    module, _, name = TRAINERS[run.workload].partition(":")
    drive(getattr(importlib.import_module(module), name), run, progress)


def drive(adapter: Adapter, run: RankRun, progress: Progress) -> None:
    """Run one rank of a trainer's run. The body of every other adapter's ``main``."""
    progress.heartbeat(Phase.START)
    driver = _Driver(adapter, run, progress)
    try:
        driver.start()
        driver.follow()
        driver.report()
    finally:
        driver.close()


class _Driver:
    """Controls one rank's trainer."""

    def __init__(self, adapter: Adapter, run: RankRun, progress: Progress) -> None:
        self._adapter = adapter
        self._run = run
        self._progress = progress
        self._selector = selectors.DefaultSelector()
        self._exchange = Exchange(run.place, self._selector)
        self._reader = adapter.reader(run)
        self._lines = Lines()
        self._settings = {**adapter.workload.params, **run.params}
        self._speakers = Speakers(run, progress, float(self._settings.get("checkpoint_timeout_s") or 0))
        self._child: subprocess.Popen[bytes] | None = None
        self._last: deque[str] = deque(maxlen=400)
        self._decided = run.place.bound is None or run.place.rank == 0
        """whether the run has lost or is complete: rank 0 says so, and all ranks measure the same iterations"""

    def start(self) -> None:
        """Write the configuration and start the command, where this rank is one that starts it."""
        place, settings = self._run.place, self._settings
        launch_once = settings["start"] == "node"
        if launch_once and place.local_rank:
            return
        directory = Path(place.scratch_dir or ".") / f"trainer{place.rank}"
        directory.mkdir(parents=True, exist_ok=True)
        kind, checkpoints, steps = saving(self._run)
        if kind != "none":
            steps += steps - 1  # one fewer, so that it writes no second one
            if not place.rank:  # not its parents: a path that is not there is a mistake
                Path(checkpoints).mkdir(mode=0o700)
        launch = self._adapter.configure(from_here(self._run, settings), str(directory), steps)
        for name, text in launch.written().items():
            (directory / name).write_text(text)
        words = command(launch, place, self._exchange.port, settings)
        environment = {**os.environ, **self._environment(launch, launch_once)}
        self._log("$ " + shlex.join(words))
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
        """Read until the measurement is complete. Ends with the trainer's exit status if it ends first."""
        while self._chosen() is None:
            if self._over():
                # What others report from now on does not count for a rank whose trainer failed.
                self._drain(LAST_LINES_S if not self._failed() else 0.0 if self._decided else STOPPED_S)
                if self._speakers.chosen(True) is None or (self._failed() and self._speakers.unsaved):
                    self._give_up()
                return
            self._once(0.5)
            if self._run.place.rank == 0 and self._chosen() is None and (after := self._speakers.lost()) is not None:
                self._exchange.send({"stop": after})
                self._speakers.stop(after)

    def report(self) -> None:
        """Send the measurement, then end the trainer."""
        # A rank may start later than a short trainer takes: it would wait for a hub that has left.
        deadline = time.monotonic() + CONNECT_S
        others = self._run.place.world_size - 1
        while self._exchange.hub and self._exchange.joined < others and time.monotonic() < deadline:
            self._progress.heartbeat(Phase.STEADY)  # who starts late has a timeout of its own: this rank does not hang
            self._once(0.5)
        chosen, stopped = self._speakers.chosen(self._over()), self._speakers.stopped
        assert chosen is not None
        if self._run.place.bound is not None and self._run.place.rank == 0 and stopped is None:
            self._exchange.send({"stop": None})
        asks = self._child is not None and not self._run.place.rank  # rank 0 alone: it may take a second
        found = versions(self._settings, self._adapter.package) if asks else {}
        self._progress.measured(self._speakers.measurement(chosen, self._adapter, found))
        self._progress.heartbeat(Phase.FINISH)
        deadline = time.monotonic() + (GRACE_S if stopped is None else 0.0)
        while not self._over() and self._child is not None and time.monotonic() < deadline:
            self._once(0.1)  # a full pipe would block its exit
        stop(self._child, TERM_S)

    def close(self) -> None:
        """End all processes of the trainer in any case."""
        stop(self._child, TERM_S)
        self._exchange.close()

    def _environment(self, launch: Launch, once: bool) -> dict[str, str]:
        """Unbuffered, and on the trainer's own port. torchrun sets what belongs to a rank by itself."""
        place = self._run.place
        several = place.local_world_size > 1
        threads = {} if "OMP_NUM_THREADS" in os.environ or not several else {"OMP_NUM_THREADS": "1"}
        own = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", "MASTER_PORT": str(self._exchange.port), **threads}
        of_rank = {} if once else replace(place, master_port=self._exchange.port).torchrun_variables()
        return {**own, **of_rank, **launch.env}

    def _over(self) -> bool:
        """Whether the own trainer has ended, or, where another rank of the node runs it, that one."""
        if self._child is None:
            return not self._exchange.connected
        return self._child.poll() is not None

    def _once(self, timeout_s: float) -> bool:
        """Process what is available, or wait for it. False on timeout."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            if key.data is None:
                self._read_child()
            else:
                for message in self._exchange.receive(key.fileobj):
                    with contextlib.suppress(KeyError, TypeError, ValueError):
                        if "stop" in message:
                            self._decided = True
                            self._speakers.stop(Stopped(*message["stop"])) if message["stop"] else None
                            continue
                        parsed = ParsedLine(**message["parsed"])
                        self._speakers.receive(int(message["rank"]), parsed, float(message["at_s"]))
        return bool(ready)

    def _read_child(self) -> None:
        """Read a chunk of output, or notice its end."""
        assert self._child is not None
        assert self._child.stdout is not None
        data = os.read(self._child.stdout.fileno(), _READ)
        if not data:
            self._selector.unregister(self._child.stdout)
        else:
            with contextlib.suppress(OSError):  # a full disk must not stop the parsing
                os.write(1, data)
        at_s = time.monotonic()
        for line, line_at_s in self._lines.timed(data, at_s):
            self._last.append(line)
            for parsed in self._reader.read(line):
                self._speakers.receive(self._run.place.rank, parsed, line_at_s)
                self._exchange.send({"rank": self._run.place.rank, "at_s": line_at_s, "parsed": vars(parsed)})

    def _chosen(self) -> Gathered | None:
        if self._failed() and self._speakers.unsaved:
            return None
        return self._speakers.chosen(self._over()) if self._decided or not self._exchange.connected else None

    def _drain(self, seconds: float) -> None:
        """Read the own trainer's output to its end, then that of others for ``seconds``."""
        own = self._child.stdout if self._child is not None else None
        deadline = time.monotonic() + LAST_LINES_S
        while own is not None and own in self._selector.get_map() and time.monotonic() < deadline:
            if not self._once(0.1) and self._failed():
                break  # a leaked process holds the pipe open
        deadline = time.monotonic() + seconds
        while self._chosen() is None and time.monotonic() < deadline and self._selector.get_map():
            self._once(0.1)

    def _failed(self) -> bool:
        return self._child is not None and bool(self._child.poll())

    def _give_up(self) -> None:
        """End with the trainer's exit status."""
        code = self._child.poll() if self._child is not None else 0
        for pattern, cause in self._adapter.hints.items():
            if code and any(re.search(pattern, line) for line in self._last):
                self._log(f"hint: {cause}")
        if code is None or code == 0:
            reported, needed = self._speakers.most_iterations(), self._run.warmup_iterations + self._run.iterations
            raise TrainerEndedError(
                f"{self._run.workload} ended without error, but reported {reported} of {needed} iterations to measure"
                + ("" if reported else self._unmatched())
            )
        if code < 0:
            signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
            os.kill(os.getpid(), -code)
        raise SystemExit(code)

    def _unmatched(self) -> str:
        """That the user's own expression matched nothing, and the last lines that it was tried on."""
        expression = self._adapter.iteration(self._run)
        last = [line.strip()[:SHOWN_OF_A_LINE] for line in self._last if line.strip()][-SHOWN_LINES:]
        if not expression or not last:
            return ""
        lines = ", ".join(map(repr, last))
        return f": `iteration` of params.metrics, {expression!r}, matched no line; the last ones were {lines}"

    def _log(self, text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(1, f"[sweep] {text}\n".encode())
