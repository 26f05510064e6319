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

    from sweep.state.state import World
    from sweep.store.sweep import Sweep
from sweep.cli.progress_text import summary_line, tally_of

PLAIN_EVERY_S = 30.0
PLAIN_AT_MOST_EVERY_S = 2.0
DRAW_EVERY_S = 1.0
"""how often the picture is drawn anew, at most: its clocks go on also where nothing happens"""

Look = Callable[["World"], None]


@contextlib.contextmanager
def live_view(sweep: Sweep, console: Console | None = None) -> Iterator[Look]:
    """Yields a function that shows the world; what it was shown last stands at the end."""
    if console is None and not sys.stderr.isatty():
        yield _plain(sweep)
        return
    from rich.console import Console as RichConsole
    from rich.live import Live

    with Live(console=console or RichConsole(stderr=True), auto_refresh=False, transient=False) as live:
        drawing = _Drawing(sweep, live)
        try:
            yield drawing.look
        finally:
            drawing.draw()


class _Drawing:
    """Draws the picture once a second, and at the end."""

    def __init__(self, sweep: Sweep, live: object) -> None:
        self._sweep, self._live = sweep, live
        self._tally = tally_of(sweep)
        self._world: World | None = None
        self._drawn_at = 0.0

    def look(self, world: World) -> None:
        self._world = world
        if time.monotonic() - self._drawn_at >= DRAW_EVERY_S:
            self.draw()

    def _renew(self) -> None:
        """Runs that were added meanwhile belong to the picture."""
        sweep = self._sweep.latest
        if sweep is not self._sweep:
            self._sweep, self._tally = sweep, tally_of(sweep)

    def draw(self) -> None:
        from rich.live import Live

        from sweep.cli.live_picture import picture

        if self._world is None:
            return
        assert isinstance(self._live, Live)
        height = self._live.console.size.height
        self._renew()
        tally = self._tally.look(self._world)
        self._live.update(picture(self._sweep, self._world, tally, time.time(), height=height), refresh=True)
        self._drawn_at = time.monotonic()


def _plain(sweep: Sweep) -> Look:
    """A line whenever the counts change, at most every few seconds; one every half minute in any case."""
    said, said_at = "", 0.0
    tally = tally_of(sweep)

    def look(world: World) -> None:
        nonlocal said, said_at, sweep, tally
        quiet_s = time.monotonic() - said_at
        if quiet_s <= PLAIN_AT_MOST_EVERY_S:
            return
        if sweep.latest is not sweep:
            sweep = sweep.latest
            tally = tally_of(sweep)
        line = summary_line(sweep, world, tally)
        if line != said or quiet_s > PLAIN_EVERY_S:
            click.echo(line, err=True)
            said, said_at = line, time.monotonic()

    return look
