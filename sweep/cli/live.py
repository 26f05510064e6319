"""The live view of a sweep: a refreshed picture on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.live import Live

    from sweep.store.sweep import Sweep
from sweep.cli.progress_text import events_text, full_text, summary_line
from sweep.cli.terminal import console, guard

PLAIN_EVERY_S = 300.0
PLAIN_AT_MOST_EVERY_S = 2.0
DRAW_EVERY_S = 1.0
"""shortest time between redraws: its clocks advance even if nothing happens"""

Redraw = Callable[["Sweep"], None]


@contextlib.contextmanager
def live_view() -> Iterator[Redraw]:
    """Yields a function that shows a sweep; the last state stays on the screen at the end."""
    view = _Drawing() if sys.stderr.isatty() else _Lines()
    try:
        yield view.show
    finally:
        view.end()


class _Drawing:
    """Draws the picture from the first state on, once a second, and at the end."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._sweep: Sweep | None = None
        self._drawn_at = 0.0

    def show(self, sweep: Sweep) -> None:
        self._sweep = sweep
        if time.monotonic() - self._drawn_at >= DRAW_EVERY_S:
            self.draw()

    def end(self) -> None:
        if self._live is not None:
            self.draw()
            self._live.stop()

    def draw(self) -> None:
        from sweep.cli.live_picture import picture

        assert self._sweep is not None
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=console(to_stderr=True), auto_refresh=False, transient=False)
            self._live.start()
            guard()  # the streams that rich put before stdout and stderr for the time of its display
        size = self._live.console.size
        self._live.update(picture(self._sweep, time.time(), height=size.height, width=size.width), refresh=True)
        self._drawn_at = time.monotonic()


class _Lines:
    """A line whenever runs or pilots change, every few seconds at most; one in five minutes at least; and the last."""

    def __init__(self) -> None:
        self._sweep: Sweep | None = None
        self._printed, self._printed_at = "", 0.0

    def show(self, sweep: Sweep) -> None:
        self._sweep = sweep
        quiet_s = time.monotonic() - self._printed_at
        if quiet_s > PLAIN_AT_MOST_EVERY_S:
            self.end(again=quiet_s > PLAIN_EVERY_S)

    def end(self, *, again: bool = False) -> None:
        """Print the last state; ``again``: also if nothing changed."""
        if self._sweep is None:
            return
        now = events_text(self._sweep) + full_text(self._sweep)
        if again or now != self._printed:
            click.echo(summary_line(self._sweep), err=True)
            self._printed, self._printed_at = now, time.monotonic()
