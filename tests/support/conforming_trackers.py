"""Whether a tracker writes runs as `sweep track` relies on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.trackers.tracker import TrackedRun, Tracker

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
    capfd: pytest.CaptureFixture[str],
    *,
    count: Callable[[TrackedRun], int],
) -> None:
    """It writes a run, a failed one, and the first again, with a picture; ``count``: how many it stores of a run.

    ``make`` gets (project, sweep directory), as of `sweep track`.
    """
    tracker = make(PROJECT, directory)
    for text in (tracker.destination, tracker.hint):
        assert text.strip()
        assert "\n" not in text
    assert make(PROJECT, directory).destination == tracker.destination, "every run would be written again"
    assert make(f"{PROJECT}-2", directory).destination != tracker.destination, "the second one would get nothing"
    picture = directory / "sweep-testing.png"
    picture.write_bytes(PICTURE)
    first = example_attempt()
    capfd.readouterr()
    tracker.write(first, None)
    tracker.write(_failed_attempt(), None)
    make(PROJECT, directory).write(first, picture)
    assert capfd.readouterr().out == "", "stdout is for the command's own result"
    assert count(first) == 1


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
