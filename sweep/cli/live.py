"""The live view of a launch: a picture that moves on a terminal, plain lines elsewhere. All of it on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweep.tally import counts, typical_run_s

if TYPE_CHECKING:
    from sweep.state import World
    from sweep.sweeps import Sweep

PLAIN_EVERY_S = 30.0
PLAIN_AT_MOST_EVERY_S = 2.0
COLOURS = {"ok": "green", "running": "cyan", "waiting": "dim"}


@contextlib.contextmanager
def live_view(sweep: Sweep) -> Iterator[Callable[[World], None]]:
    """Yields a function that shows the world."""
    if not sys.stderr.isatty():
        yield _plain(sweep)
        return
    with Live(console=Console(stderr=True), refresh_per_second=4, transient=False) as live:
        yield lambda world: live.update(picture(sweep, world))


def _plain(sweep: Sweep) -> Callable[[World], None]:
    """A line whenever the counts change, at most every few seconds; one every half minute in any case."""
    said, said_at = "", 0.0

    def look(world: World) -> None:
        nonlocal said, said_at
        line = summary_line(sweep, world)
        quiet_s = time.monotonic() - said_at
        if (line != said and quiet_s > PLAIN_AT_MOST_EVERY_S) or quiet_s > PLAIN_EVERY_S:
            click.echo(line, err=True)
            said, said_at = line, time.monotonic()

    return look


def summary_line(sweep: Sweep, world: World) -> str:
    """Counts, pilots and the time to go, in one line."""
    found = counts(world, sweep.runs, sweep.left_out(world))
    words = ", ".join(f"{number} {word}" for word, number in sorted(found.items(), key=lambda item: -item[1]))
    pilots = [pilot for pilot in world.pilots.values() if pilot.open]
    queued = sum(pilot.started_at is None for pilot in pilots)
    return (
        f"{len(sweep.runs)} runs: {words}; pilots: {len(pilots) - queued} running, {queued} queued; {eta(sweep, world)}"
    )


def eta(sweep: Sweep, world: World) -> str:
    """How much is left, by what a run took so far."""
    found = counts(world, sweep.runs, sweep.left_out(world))
    left = found.get("waiting", 0) + found.get("running", 0)
    if not left:
        return "done"
    running = sum(pilot.started_at is not None for pilot in world.pilots.values() if pilot.open)
    minutes = left * typical_run_s(world) / max(1, running) / 60
    return f"about {minutes:.0f} min to go" if minutes >= 1.5 else "about a minute to go"


def picture(sweep: Sweep, world: World) -> Group:
    """The terminal's picture: a bar, the runs by state, the best so far per cell."""
    found = counts(world, sweep.runs, sweep.left_out(world))
    settled = len(sweep.runs) - found.get("waiting", 0) - found.get("running", 0)
    states = Text("  ").join(
        Text(f"{number} {word}", style=COLOURS.get(word, "red")) for word, number in sorted(found.items())
    )
    return Group(
        Text(f"{sweep.grid.name}  {settled}/{len(sweep.runs)}  ", style="bold") + states,
        ProgressBar(total=max(1, len(sweep.runs)), completed=settled, width=60),
        _best_table(sweep, world),
        Text(summary_line(sweep, world), style="dim"),
    )


def _best_table(sweep: Sweep, world: World) -> Table:
    """Model by nodes: the best tokens/s/GPU so far and how many runs of the cell are settled."""
    widths = sorted({planned.nodes for planned in sweep.runs})
    table = Table("best tok/s/GPU", *[f"{n} nodes" if n > 1 else "1 node" for n in widths], box=None, padding=(0, 2))
    cells: dict[tuple[str, int], list[float | None]] = {}
    for planned in sweep.runs:
        state = world.runs.get(planned.run_id)
        best = state.ok.tokens_per_second_per_gpu if state is not None and state.ok is not None else None
        cells.setdefault((planned.model, planned.nodes), []).append(best)
    for model in dict.fromkeys(planned.model for planned in sweep.runs):
        table.add_row(model, *[_cell(cells.get((model, width))) for width in widths])
    return table


def _cell(values: list[float | None] | None) -> str:
    if values is None:
        return "-"
    measured = [value for value in values if value is not None]
    return f"{max(measured):,.0f}  ({len(measured)}/{len(values)})" if measured else f"(0/{len(values)})"
