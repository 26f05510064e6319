"""Whether a tracker writes runs as `sweep track` relies on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sweep.trackers.tracker import TrackedRun, Tracker, TrackerError
from tests.support.findings import named, require_none

PROJECT = "sweep-testing"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005fe02fe"
    "0def46b80000000049454e44ae426082"
)
"""a PNG of one pixel"""

MakeTracker = Callable[[str, Path], Tracker]


def check_tracker(
    make: MakeTracker,
    directory: Path,
    *,
    count: Callable[[TrackedRun], int] | None = None,
    unreachable: Callable[[], Tracker] | None = None,
) -> None:
    """Check a tracker: it writes a run, a failed one, one with a picture, and one again.

    ``make``: called with (project, sweep directory), as `sweep track` does. ``count``: how many runs the tracker
    stores under a run's key; without it, that nothing is stored twice is not checked. ``unreachable``: makes a
    tracker whose server or folder cannot be reached. Raises ConformanceError.
    """
    findings = [*_text_findings(make, directory)]
    first, failed = example_attempt(), _failed_attempt()
    picture = directory / "sweep-testing.png"
    picture.write_bytes(PICTURE)
    tracker = make(PROJECT, directory)
    findings += (f"a run: {finding}" for finding in _write_findings(tracker, first, None))
    findings += (f"a failed run without iterations: {finding}" for finding in _write_findings(tracker, failed, None))
    again = _write_findings(make(PROJECT, directory), first, picture)
    findings += (f"the run again, with a picture: {finding}" for finding in again)
    if count is not None and (stored := count(first)) != 1:
        findings.append(f"write: a run that was written twice is stored {stored} times")
    if unreachable is not None:
        findings += _unreachable_findings(unreachable, first)
    require_none(f"the tracker {type(tracker).__name__}", findings)


def example_attempt() -> TrackedRun:
    """A run as trackers get it, with a value of every kind."""
    config = {"sweep_id": "s", "model": "8B", "dp": 2, "compile": False, "shape": {"hidden_size": 64}, "nodes": ["n1"]}
    summary = {"outcome": "ok", "mfu": 0.4, "message": "ünïcode", "suspect": False, "notes": ["a", "b"]}
    history = [{"loss": 2.5, "step_time_s": 0.5}, {"loss": 2.25, "step_time_s": 0.25}]
    values = {"key": "0123456789abcdef01234567", "name": "8B-n1-dp2-0123456789abcdef.1", "group": "s"}
    return TrackedRun(**values, config=config, summary=summary, history=history, failed=False)


def _failed_attempt() -> TrackedRun:
    ok = example_attempt()
    name = f"{ok.name[:-1]}2"
    return replace(ok, key=ok.key[::-1], name=name, summary={"outcome": "hang"}, history=(), failed=True)


def _text_findings(make: MakeTracker, directory: Path) -> Iterator[str]:
    tracker = make(PROJECT, directory)
    for name in ("destination", "hint"):
        text = getattr(tracker, name)
        if not isinstance(text, str) or not text.strip() or "\n" in text:
            yield f"{name}: {text!r} is not one line of text"
    if make(PROJECT, directory).destination != tracker.destination:
        yield "destination: differs between two trackers of one project: every run would be written again"
    if make(f"{PROJECT}-2", directory).destination == tracker.destination:
        yield "destination: is the same for two projects: the second one would get nothing"


def _write_findings(tracker: Tracker, run: TrackedRun, picture: Path | None) -> Iterator[str]:
    with tempfile.TemporaryFile() as printed:
        try:
            with _stdout_to(printed.fileno()):
                tracker.write(run, picture)
        except Exception as error:  # third-party code: a client may raise anything
            yield f"write: raised {named(error)}"
        printed.seek(0)
        if text := printed.read(200):
            yield f"write: printed {text!r} on stdout, which is for the command's own result"


def _unreachable_findings(unreachable: Callable[[], Tracker], run: TrackedRun) -> Iterator[str]:
    try:
        unreachable().write(run)
    except TrackerError:
        return
    except Exception as error:
        yield f"write: raised {named(error)} where its destination cannot be reached, not TrackerError"
    else:
        yield "write: reported no error where its destination cannot be reached"


@contextmanager
def _stdout_to(descriptor: int) -> Iterator[None]:
    """Redirect the process's stdout, also of what a client starts."""
    saved = os.dup(1)
    os.dup2(descriptor, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
