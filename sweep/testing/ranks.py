"""The ranks of one run as processes of this machine, started as an agent starts them, and what they reported."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sweep.contract import Place, Run, Workload
from sweep.pilot.agent.fork_messages import ForkRequest, encode
from sweep.pilot.agent.progress import Report, report_in

POLL_S = 0.02
TAIL_BYTES = 4000


@dataclass(frozen=True)
class RankResult:
    """How one rank ended."""

    number: int
    exit_code: int | None
    """None: it did not end in time and was killed"""
    reports: tuple[Report, ...]
    unreadable: tuple[bytes, ...]
    """lines of its progress pipe that are no report"""
    output: str
    """the end of its stdout and stderr"""


@dataclass
class _Process:
    number: int
    process: subprocess.Popen[bytes]
    pipe: int
    log: Path
    data: bytearray = field(default_factory=bytearray)

    def read(self) -> None:
        """Take what the rank wrote, so that it never blocks on a full pipe."""
        while True:
            try:
                data = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                return
            self.data += data

    def result(self, *, killed: bool) -> RankResult:
        lines = bytes(self.data).split(b"\n")
        reports = [report_in(line) for line in lines]
        bad = tuple(line for line, report in zip(lines, reports, strict=True) if line and report is None)
        output = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
        code = None if killed else self.process.returncode
        return RankResult(self.number, code, tuple(report for report in reports if report is not None), bad, output)


def run_ranks(workload: Workload, run: Run, timeout_s: float) -> list[RankResult]:
    """Run every rank of the run to its end, at most for ``timeout_s``."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sweep-testing-")))
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        port = listener.getsockname()[1]
        if not workload.takes_listener:
            listener.close()
        places = [_place(run, number, port, scratch) for number in range(run.gpus)]
        # Rank 0 last, so that a training of milliseconds does not end before the others have found it. Then only its
        # own copy of the listener is open: a rank that comes later is refused, and does not wait for an answer.
        started = [_start(workload, run, place, listener) for place in reversed(places)][::-1]
        listener.close()
        deadline = time.monotonic() + timeout_s
        while any(rank.process.poll() is None for rank in started) and time.monotonic() < deadline:
            for rank in started:
                rank.read()
            time.sleep(POLL_S)
        return [_end(rank) for rank in started]


def _place(run: Run, number: int, port: int, scratch: Path) -> Place:
    return Place(
        rank=number,
        world_size=run.gpus,
        local_rank=number,
        local_world_size=run.gpus,
        node_rank=0,
        master_addr="127.0.0.1",
        master_port=port,
        scratch_dir=str(scratch),
    )


def _start(workload: Workload, run: Run, place: Place, listener: socket.socket) -> _Process:
    log = Path(place.scratch_dir) / f"log.{place.rank}"
    read, write = os.pipe()
    os.set_blocking(read, False)
    given = [write]
    if place.rank == 0 and workload.takes_listener:
        given.append(listener.fileno())
    env = {**run.env, **place.torchrun_variables()}
    request = ForkRequest(main=workload.main, run=run.canonical_json(), places=(place,), env=env)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweep.testing.rank", *map(str, [output.fileno(), *given])],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[output.fileno(), *given],
            cwd=place.scratch_dir,
            env=_environment(run),
            start_new_session=True,
        )
    os.close(write)
    assert process.stdin is not None
    process.stdin.write(encode(request))
    process.stdin.close()
    return _Process(place.rank, process, read, log)


def _environment(run: Run) -> dict[str, str]:
    return {**os.environ, **run.env, "PYTHONPATH": os.pathsep.join(_import_path())}


def _import_path() -> Sequence[str]:
    """This process's import path, absolute: a rank starts in another directory."""
    return [str(Path(entry or ".").absolute()) for entry in sys.path]


def _end(rank: _Process) -> RankResult:
    killed = rank.process.poll() is None
    if killed:
        rank.process.kill()
    rank.process.wait()
    rank.read()
    os.close(rank.pipe)
    return rank.result(killed=killed)
