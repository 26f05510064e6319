"""Processes of `sweep` itself: a launcher in the background, and a tracker alongside one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from bench_workloads.interpreter import module_command
from sweep.errors import Mistake, SweepError
from sweep.plugins import TRACKER

LAST_WORDS_S = 30.0
"""how long a finished sweep waits for its tracker"""


def resume_in_background(directory: Path, *, takeover: bool, tracker: str | None) -> int:
    """The process of `sweep resume`, which lives on after this one: its output is launcher.out in the directory."""
    words = ["--takeover"] * takeover + (["--track", tracker] if tracker is not None else [])
    return _start(directory, "launcher.out", "resume", str(directory), *words, stdin=subprocess.DEVNULL).pid


def check_tracker(name: str | None, *, detach: bool, executor: str) -> None:
    """Raises SweepError if a sweep about to start names a tracker that is not available."""
    if name is None:
        return
    if detach and executor != "local":
        fact = "a detached launcher cannot track"
        raise SweepError(Mistake(fact, path="--track", remedy=f"later: `sweep track DIR --to {name}`"))
    TRACKER.find(name)("check", Path.cwd())


@contextlib.contextmanager
def tracking_alongside(directory: Path, tracker: str | None, note: Callable[[str], None]) -> Iterator[None]:
    """A process alongside the launcher that tracks runs as they end. If it fails, the sweep continues, and ``note``
    says so.

    Its standard input ends with the launcher, also if that is killed: this stops it.
    """
    if tracker is None:
        yield
        return
    child = None
    try:
        words = ("track", str(directory), "--to", tracker, "--follow")
        child = _start(directory, "track.out", *words, stdin=subprocess.PIPE)
    except OSError as error:
        note(f"no tracking with this launch: {error}")
    try:
        yield
    finally:
        if child is not None and (problem := _end(child, LAST_WORDS_S)) is not None:
            note(f"{problem}; `sweep track {directory} --to {tracker}` continues")


def _start(directory: Path, output: str, *words: str, stdin: int) -> subprocess.Popen[bytes]:
    with (directory / output).open("ab") as out:
        return subprocess.Popen(
            module_command("sweep.cli.main", *words), stdin=stdin, stdout=out, stderr=out, start_new_session=True
        )


def _end(child: subprocess.Popen[bytes], wait_s: float) -> str | None:
    """Let the child write the rest, for a limited time; then end it and all its processes. The error as text."""
    assert child.stdin is not None
    with contextlib.suppress(OSError):
        child.stdin.close()
    try:
        code = child.wait(wait_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return f"the tracker did not end within {wait_s:.0f} s"
    return "the tracker failed, and track.out in the sweep directory has the reason" if code else None
