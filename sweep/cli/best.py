"""`sweep best`: the answer of a sweep on the screen, and the same table after launch, import and report."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from sweep.cli.best_table import table
from sweep.cli.command import InputPath, SweepCommand
from sweep.cli.names import metric_option
from sweep.cli.options import json_option
from sweep.cli.sources import named
from sweep.errors import SweepError
from sweep.library.sources import METRIC
from sweep.library.winners import Row, complete, winners

WIDTH = 140
"""characters of a line where the output is no terminal"""


@click.command(cls=SweepCommand, short_help="The best configuration of each cell, as a table.")
@click.argument("sources", metavar="[DIR_OR_PARQUET]...", nargs=-1, type=InputPath())
@metric_option()
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only matching records, e.g. "zero <= 1".')
@click.option("--model", "models", multiple=True, help="Only this model's cells. Repeatable.")
@click.option("--nodes", "widths", type=int, multiple=True, help="Only cells with this many nodes. Repeatable.")
@json_option
def best(
    sources: tuple[Path, ...],
    metric: str,
    expression: str | None,
    models: tuple[str, ...],
    widths: tuple[int, ...],
    as_json: bool,
) -> int:
    """Show the best configuration per model and node count: layout, speed, MFU, memory, margin, and how sure it is.

    "clear" needs repeats: the iterations of one run say nothing of the next run. A sweep's new records are collected
    first.

    \b
    Examples:
      sweep best
      sweep best sweeps/first --model 8B
      sweep best results.parquet --metric mfu --json
    """
    rows = winners(named(sources), metric, expression, models, widths)
    if as_json:
        click.echo(json.dumps([complete(row, metric) for row in rows]))
    else:
        _print(rows, metric, to_stderr=False)
    return 0


def show_best(sources: Sequence[Path], metric: str = METRIC) -> bool:
    """Print the table on stderr, at the end of another command. False, and nothing, where no cell was measured."""
    try:
        rows = winners(sources, metric)
    except SweepError:
        return False
    _print(rows, metric, to_stderr=True)
    return True


def _print(rows: Sequence[Row], metric: str, *, to_stderr: bool) -> None:
    from rich.console import Console

    stream = sys.stderr if to_stderr else sys.stdout
    console = Console(stderr=to_stderr, highlight=False, width=None if stream.isatty() else WIDTH)
    console.print(table(rows, metric, console.width))
