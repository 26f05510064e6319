"""`sweep collect` and `sweep heatmap`: from records to a table and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.options import directory_argument, json_option

if TYPE_CHECKING:
    from analysis.heatmap import Heatmap
    from sweep.store import SweepDir


@click.command(short_help="Records to results.parquet.")
@directory_argument
@json_option
def collect(directory: Path | None, as_json: bool) -> int:
    """Bring the records of a sweep into results.parquet, one row per attempt.

    Only what is new since the last time is read. The table may be deleted: this builds it again.

    \b
    Examples:
      sweep collect
      sweep collect sweeps/first --json
    """
    from sweep.collect import collect as collect_records
    from sweep.store import find_sweep

    done = collect_records(find_sweep(directory))
    if as_json:
        document = {"path": str(done.path), "attempts": done.attempts, "new": done.new}
        click.echo(json.dumps({**document, "runs": done.runs, "outcomes": dict(done.outcomes)}))
    else:
        words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items()))
        click.echo(f"{done.path}: {done.attempts} attempts of {done.runs} runs ({words or 'none yet'})", err=True)
    return 0


@click.command(short_help="Best configuration per model and node count, as a picture.")
@click.argument("source", metavar="[DIR_OR_PARQUET]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="PNG, SVG or PDF. Default: figures/heatmap.png of the sweep."
)
@click.option(
    "--metric",
    default="tokens_per_second_per_gpu",
    show_default=True,
    help="Ranks the configurations; also mfu, reported_mfu, tflops_per_gpu and others (a wrong one lists them).",
)
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only records that meet it, e.g. "zero <= 1".')
@click.option(
    "--annotate", default="auto", show_default=True, help="How much a cell says: auto, full, brief, value, none."
)
@json_option
def heatmap(
    source: Path | None, out: Path | None, metric: str, expression: str | None, annotate: str, as_json: bool
) -> int:
    """Draw the best configuration per model and node count. Blank cells say why they are blank.

    \b
    Examples:
      sweep heatmap
      sweep heatmap sweeps/first --metric mfu --out best.svg
      sweep heatmap results.parquet --filter "zero <= 1"
    """
    from sweep.store import find_sweep

    if source is not None and source.is_file():
        target = out or source.with_name("heatmap.png")
        drawn = _draw(source, target, metric, expression, annotate)
    else:
        sweep = find_sweep(source)
        target = out or sweep.figures / "heatmap.png"
        drawn = _collect_and_draw(sweep, target, metric, expression, annotate)
    if as_json:
        click.echo(json.dumps({"path": str(target), "cells": _rows(drawn)}))
    else:
        click.echo(str(target))
    return 0


def draw_heatmap(sweep: SweepDir) -> Path:
    """Collect, draw with every default, and say where the picture is."""
    target = sweep.figures / "heatmap.png"
    _collect_and_draw(sweep, target, "tokens_per_second_per_gpu", None, "auto")
    return target


def _collect_and_draw(sweep: SweepDir, target: Path, metric: str, expression: str | None, annotate: str) -> Heatmap:
    from sweep.collect import collect as collect_records

    collect_records(sweep)
    return _draw(sweep.path, target, metric, expression, annotate)


def _draw(source: Path, target: Path, metric: str, expression: str | None, annotate: str) -> Heatmap:
    import analysis
    from analysis.heatmap import check_format, save

    check_format(target)
    records = analysis.load(source)
    plan = analysis.load_plan(source)
    if expression is not None:
        records = analysis.keep(records, expression)
    drawn = analysis.draw_heatmap(records, plan, metric=metric, annotate=annotate)
    save(drawn, target)
    return drawn


def _rows(drawn: Heatmap) -> list[dict[str, Any]]:
    """The table behind the picture as JSON values."""
    rows: list[dict[str, Any]] = json.loads(drawn.cells.to_json(orient="records"))
    return rows
