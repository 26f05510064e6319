"""`sweep collect` and `sweep heatmap`: from records to a table and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, without_effect
from sweep.cli.learned import predictions
from sweep.cli.names import metric_option, name_option
from sweep.cli.options import FiniteRange, directory_argument, json_option, site_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import all_results, chosen_sweep, named
from sweep.errors import SweepError

if TYPE_CHECKING:
    from analysis.heatmap.draw import Heatmap


@click.command(cls=SweepCommand, short_help="Write all records to results.parquet.")
@directory_argument
@json_option
def collect(directory: Path | None, as_json: bool) -> int:
    """Collect the records of a sweep in results.parquet, one row per attempt.

    Only new records are read. The table may be deleted: this command rebuilds it.

    \b
    Examples:
      sweep collect
      sweep collect sweeps/first --json
    """
    from sweep.records.collect import collect as collect_records

    done = collect_records(chosen_sweep(directory))
    if as_json:
        document = {"path": str(done.path), "attempts": done.attempts, "new": done.new}
        click.echo(json.dumps({**document, "runs": done.runs, "outcomes": dict(done.outcomes)}))
    else:
        words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items()))
        click.echo(
            f"{done.path}: {plural(done.attempts, 'attempt')} of {plural(done.runs, 'run')} ({words or 'none yet'})",
            err=True,
        )
    return 0


@click.command(cls=SweepCommand, short_help="Best configuration per model and node count, as a picture.")
@click.argument("sources", metavar="[DIR_OR_PARQUET]...", nargs=-1, type=InputPath())
@click.option("--out", type=OutputPath(), help="PNG, SVG or PDF. Default: figures/heatmap.png of the sweep.")
@metric_option()
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only matching records, e.g. "zero <= 1".')
@click.option("--node-group", metavar="NAME", help="One kind of nodes only, in the colours of all kinds.")
@name_option(
    "--annotate", kind="annotation", names=lambda: ("auto", "full", "brief", "value", "none"), default="auto",
    show_default=True, help="Text of a cell.",
)  # fmt: skip
@click.option(
    "--width", "width_in", type=FiniteRange(2, 60), default=7.0, show_default=True, help="Inches; 7 is a page's width."
)
@click.option(
    "--predicted",
    "grid_file",
    metavar="GRID",
    type=InputPath(),
    help="A grid's predictions; with results, of the cells that they lack.",
)
@site_option
@json_option
def heatmap(
    sources: tuple[Path, ...],
    out: Path | None,
    metric: str,
    expression: str | None,
    node_group: str | None,
    annotate: str,
    width_in: float,
    grid_file: Path | None,
    site_given: str | None,
    as_json: bool,
) -> int:
    """Draw the best configuration per model and node count. Blank cells state the reason.

    Several sweeps are drawn as one. A sweep's new records are collected first. Kinds of nodes (the site's node_groups)
    are drawn side by side.

    \b
    Examples:
      sweep heatmap
      sweep heatmap sweeps/first --metric mfu --out best.svg
      sweep heatmap results.parquet --filter "zero <= 1 and model in ('1B', '8B')"
      sweep heatmap sweeps/a sweeps/b --json
      sweep heatmap sweeps/first --node-group h200
      sweep heatmap --predicted grid.yaml --site h100.yaml
      sweep heatmap sweeps/small --predicted large.yaml
    """
    appearance: dict[str, Any] = {
        "metric": metric, "keep": expression, "node_group": node_group, "annotate": annotate, "width_in": width_in,
    }  # fmt: skip
    if grid_file is not None:
        target = out or Path(f"{grid_file.stem}-predicted.png")
        drawn = _draw_predicted(grid_file, site_given, sources, target, appearance)
    else:
        if useless := without_effect(["site_given"], "without --predicted"):
            raise SweepError(useless)
        from sweep.library.heatmap import draw_heatmap

        target, drawn = draw_heatmap(named(sources), out, **appearance)
    if as_json:
        click.echo(json.dumps({"path": str(target), "cells": drawn.rows()}))
    else:
        click.echo(str(target))
    return 0


def _draw_predicted(
    grid_file: Path, site_given: str | None, sources: tuple[Path, ...], target: Path, appearance: dict[str, Any]
) -> Heatmap:
    """The heatmap of a grid's predictions: an answer without a GPU, marked as predicted.

    With results, the cells that they measured are as measured, and predict the others.
    """
    import analysis
    from analysis.derive.best import NEEDED
    from analysis.derive.planned import with_predictions
    from analysis.heatmap.draw import check_format, save

    check_format(target)
    candidates, predicted = predictions(grid_file, site_given, sources)
    records = predicted
    if sources:
        ((place, _),) = all_results(sources)
        records = with_predictions(analysis.load([place], NEEDED), predicted)
    drawn = analysis.draw_heatmap(records, candidates, **appearance)
    save(drawn, target)
    return drawn
