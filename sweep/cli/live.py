"""The live view of a sweep: a picture that moves on a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from sweep.store.follow import FollowedSweep
from sweep.cli.progress_text import summary_line

PLAIN_EVERY_S = 30.0
PLAIN_AT_MOST_EVERY_S = 2.0
DRAW_EVERY_S = 1.0
"""how often the picture is drawn anew, at most: its clocks go on also where nothing happens"""

Look = Callable[["FollowedSweep"], None]


@contextlib.contextmanager
def live_view(console: Console | None = None) -> Iterator[Look]:
    """Yields a function that shows a sweep; what it was shown last stands at the end."""
    if console is None and not sys.stderr.isatty():
        yield _plain()
        return
    from rich.console import Console as RichConsole
    from rich.live import Live

    with Live(console=console or RichConsole(stderr=True), auto_refresh=False, transient=False) as live:
        drawing = _Drawing(live)
        try:
            yield drawing.look
        finally:
            drawing.draw()


class _Drawing:
    """Draws the picture once a second, and at the end."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._followed: FollowedSweep | None = None
        self._drawn_at = 0.0

    def look(self, followed: FollowedSweep) -> None:
        self._followed = followed
        if time.monotonic() - self._drawn_at >= DRAW_EVERY_S:
            self.draw()

    def draw(self) -> None:
        from sweep.cli.live_picture import picture

        if self._followed is None:
            return
        self._live.update(picture(self._followed, time.time(), height=self._live.console.size.height), refresh=True)
        self._drawn_at = time.monotonic()


def _plain() -> Look:
    """A line whenever the counts change, at most every few seconds; one every half minute in any case."""
    said, said_at = "", 0.0

    def look(followed: FollowedSweep) -> None:
        nonlocal said, said_at
        quiet_s = time.monotonic() - said_at
        if quiet_s <= PLAIN_AT_MOST_EVERY_S:
            return
        line = summary_line(followed)
        if line != said or quiet_s > PLAIN_EVERY_S:
            click.echo(line, err=True)
            said, said_at = line, time.monotonic()

    return look
