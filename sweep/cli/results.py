"""`sweep collect` and `sweep heatmap`: from records to a table and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.cli.names import FiniteRange, directory_argument, json_option, metric_option
from sweep.cli.sources import chosen_sweep, named
from sweep.errors import plural


@click.command(cls=SweepCommand)
@directory_argument
@json_option
def collect(directory: Path | None, as_json: bool) -> int:
    """Write the records of a sweep to results.parquet, one row per attempt.

    Only new records are read. The table may be deleted; this command rebuilds it.

    \b
    Examples:
      sweep collect
      sweep collect sweeps/first --json
    """
    from sweep.library.sources import collect as collect_records

    done = collect_records(chosen_sweep(directory).path)
    if as_json:
        click.echo(json.dumps({**vars(done), "path": str(done.path), "outcomes": dict(done.outcomes)}))
    else:
        words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items()))
        click.echo(
            f"{done.path}: {plural(done.attempts, 'attempt')} of {plural(done.runs, 'run')} ({words or 'none yet'})",
            err=True,
        )
    return 0


@click.command(cls=SweepCommand)
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=InputPath())
@click.option(
    "--out", type=OutputPath(), help="Output file (PNG, SVG or PDF). Default: figures/heatmap.png of the sweep."
)
@metric_option()
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only matching records, e.g. "zero <= 1".')
@click.option(
    "--width",
    "width_in",
    type=FiniteRange(2, 60),
    default=7.0,
    show_default=True,
    help="Width in inches; 7 fits a page.",
)
@json_option
def heatmap(
    sources: tuple[Path, ...],
    out: Path | None,
    metric: str,
    expression: str | None,
    width_in: float,
    as_json: bool,
) -> int:
    """Draw the best configuration per model and node count. Blank cells state the reason.

    Several sweeps are drawn as one. New records are collected first.

    \b
    Examples:
      sweep heatmap
      sweep heatmap sweeps/first --metric mfu --out best.svg
      sweep heatmap results.parquet --filter "zero <= 1 and model in ('1B', '8B')"
      sweep heatmap sweeps/a sweeps/b --json
    """
    from sweep.library.winners import draw_heatmap

    target, drawn = draw_heatmap(named(sources), out, metric=metric, keep=expression, width_in=width_in)
    if as_json:
        click.echo(json.dumps({"path": str(target), "cells": drawn.rows()}))
    else:
        click.echo(str(target))
    return 0
