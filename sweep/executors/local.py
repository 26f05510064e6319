"""Pilots as processes of this machine: the same leader, with as many simulated nodes as the pilot asks for.

A job id is ``local-<pid>-<start>@<host>``: the start distinguishes a process from a later one with that number, the
host keeps a second login node from taking a process that it cannot see for ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench_workloads.interpreter import module_command
from sweep.executors.entry import PILOT_MAIN
from sweep.executors.executor import JobState, JobStatus, PilotRequest, SubmitError
from sweep.executors.script import setup_lines
from sweep.stated import shell_word, shell_words
from sweep.store.lease import living, start_of

if TYPE_CHECKING:
    from sweep.inputs.site import Site

MARK = "SWEEP_PILOT"
"""in the environment of every process of a pilot; its value is the pilot's token"""
_GONE = (psutil.Error, OSError)
EXEC_READS, EXEC_PAUSE_S = 5, 0.02
"""an exec takes about a millisecond, more where its file system is slow"""


@dataclass(frozen=True)
class LocalJob:
    """The identity of one leader process."""

    pid: int
    start: str
    host: str

    @property
    def job_id(self) -> str:
        """The id as text, as journals store it."""
        return f"local-{self.pid}-{self.start}@{self.host}"

    @classmethod
    def of(cls, pid: int) -> LocalJob:
        """The identity of a living process."""
        return cls(pid, start_of(pid), socket.gethostname())

    @classmethod
    def parse(cls, job_id: str) -> LocalJob | None:
        """The inverse of job_id; None for another executor's id."""
        found = re.fullmatch(r"local-(\d+)-([^@]+)@(.+)", job_id)
        return cls(int(found[1]), found[2], found[3]) if found else None


class LocalExecutor:
    """Pilots as processes of this machine. There is no queue: the launcher bounds their number."""

    def __init__(self, site: Site, sweep_dir: Path | str, *, pilot_main: str = PILOT_MAIN) -> None:
        self._site = site
        self._sweep_dir = Path(sweep_dir).expanduser().absolute()
        self._module = pilot_main.partition(":")[0]
        self._children: list[subprocess.Popen[bytes]] = []

    def cluster(self) -> str:
        """This machine: its processes are seen here only."""
        return socket.gethostname()

    def script(self, request: PilotRequest) -> str:
        """What would be started: the user's set-up lines, then the leader, which replaces their shell."""
        exports = [f"export {name}={shell_word(value)}" for name, value in sorted(self._site.env.items())]
        words = [str(self._sweep_dir), request.name]
        python = self._site.python or sys.executable
        command = shell_words(module_command(self._module, *words, python=python, options=("-u",)))
        return "\n".join([*setup_lines(self._site), *exports, f"exec {command}", ""])

    def submit(self, request: PilotRequest) -> str:
        """Start the leader, detached from this process and its terminal. Raises SubmitError."""
        folder = self._sweep_dir / "pilots" / request.name
        try:
            folder.mkdir(mode=0o700, exist_ok=True)  # never the sweep directory, which may be away
            with (folder / "stdout").open("ab") as stdout, (folder / "stderr").open("ab") as stderr:
                child = subprocess.Popen(
                    ["bash", "-c", self.script(request)],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                    env={**os.environ, MARK: request.token},
                )
        except OSError as error:
            if isinstance(error, FileNotFoundError) and error.filename != "bash":
                raise  # the sweep directory is away
            raise SubmitError(f"the pilot's process did not start: {error}", retry=False) from error
        self._children.append(child)
        try:
            return LocalJob.of(child.pid).job_id
        except _GONE as error:
            raise SubmitError(f"the pilot's process ended at once, see {folder}/stderr", retry=False) from error

    def poll(self, job_ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """The jobs' states, by pid and start time. Jobs of another host are UNKNOWN here."""
        self._reap()
        return {job_id: _status(job_id) for job_id in job_ids}

    def find(self, token: str) -> tuple[JobState, str | None]:
        """The leader that carries the token in its environment: of several processes, the topmost.

        A pilot is seen only on the host that started it.
        """
        self._reap()
        found = sorted(_marked(token), key=lambda process: process.create_time())
        for process in found:
            with contextlib.suppress(*_GONE):
                if self._module in process.cmdline() or process.ppid() not in {p.pid for p in found}:
                    return JobState.RUNNING, LocalJob.of(process.pid).job_id
        return JobState.GONE, None

    def cancel(self, job_ids: Sequence[str]) -> None:
        """SIGTERM to each leader, which then ends its agents and ranks."""
        for job_id in job_ids:
            job = LocalJob.parse(job_id)
            process = living(job.pid, job.start) if job is not None and job.host == socket.gethostname() else None
            if process is not None:
                with contextlib.suppress(*_GONE):
                    process.send_signal(signal.SIGTERM)

    def _reap(self) -> None:
        """Reap our own ended children, so that none stays a zombie for the life of a launcher."""
        self._children = [child for child in self._children if child.poll() is None]


def _status(job_id: str) -> JobStatus:
    job = LocalJob.parse(job_id)
    if job is None:
        return JobStatus(state=JobState.UNKNOWN, reason=f"{job_id} is not a job of the local executor")
    if job.host != socket.gethostname():
        return JobStatus(state=JobState.UNKNOWN, reason=f"runs on {job.host}, not here")
    process = living(job.pid, job.start)
    with contextlib.suppress(*_GONE):
        if process is not None and process.status() == psutil.STATUS_STOPPED:
            return JobStatus(state=JobState.SUSPENDED, word="stopped")
    state = JobState.RUNNING if process is not None else JobState.GONE
    return JobStatus(state=state, word="running" if state is JobState.RUNNING else "ended")


def _marked(token: str) -> Iterator[psutil.Process]:
    """This user's living processes that carry the token.

    In an exec the environment reads as empty until the new program is loaded, as /proc/PID/environ does: such a process
    is read again, a few times. Ended processes and threads of the kernel, which are root's, have no memory.
    """
    mine, unread = os.getuid(), list(psutil.process_iter())
    for _ in range(EXEC_READS):
        empty = []
        for process in unread:
            with contextlib.suppress(*_GONE):
                if process.uids().real != mine or not process.memory_info().vms:
                    continue
                if not (environment := process.environ()):
                    empty.append(process)
                elif environment.get(MARK) == token:
                    yield process
        if not (unread := empty):
            return
        time.sleep(EXEC_PAUSE_S)
