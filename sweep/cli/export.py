"""`sweep export`: the best configuration of each cell, as a table or in a trainer's own format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, without_effect
from sweep.cli.options import METRIC
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LAYOUT = ("dp", "tp", "pp", "cp", "ep", "zero", "micro_batch_size", "grad_accum")
FORMS = ("json", "csv", "markdown", "flags")
"""Our own formats; any other name is a trainer's."""

Row = dict[str, Any]


@click.group(short_help="The best configuration of each cell: JSON, CSV, a trainer's own format.")
def export() -> None:
    """Export results for other programs.

    \b
    Examples:
      sweep export best
      sweep export best sweeps/first --format markdown
    """


@export.command(cls=SweepCommand, short_help="The best configuration of each cell.")
@click.argument("sources", metavar="[DIR_OR_PARQUET]...", nargs=-1, type=InputPath())
@click.option(
    "--format",
    "form",
    default="json",
    show_default=True,
    help=f"{', '.join(FORMS)}, or a trainer (an unknown name lists all).",
)
@click.option("--metric", default=METRIC, show_default=True, help="Ranks the configurations; an unknown one lists all.")
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only matching records, e.g. "zero <= 1".')
@click.option("--model", "models", multiple=True, help="Only this model's cells. Repeatable.")
@click.option("--nodes", "widths", type=int, multiple=True, help="Only cells with this many nodes. Repeatable.")
@click.option("--iterations", type=click.IntRange(1), help="For a trainer's format. Default: as measured.")
@click.option("--out", type=OutputPath(directory=True), help="For a trainer's format: directory for its files.")
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
def best(
    sources: tuple[Path, ...],
    form: str,
    metric: str,
    expression: str | None,
    models: tuple[str, ...],
    widths: tuple[int, ...],
    iterations: int | None,
    out: Path | None,
) -> int:
    """Print the best configuration of each cell that was measured.

    A trainer's format is its adapter's output for the run: configuration files and command.

    \b
    Examples:
      sweep export best
      sweep export best results.parquet --format markdown --metric mfu
      sweep export best sweeps/first --format flags --model 8B --nodes 4
      sweep export best sweeps/first --format TRAINER --out configs
    """
    from sweep.cli import export_trainer

    if form not in FORMS:
        export_trainer.check(form, FORMS)
    records = _winners(sources, metric, expression, models, widths)
    if form in FORMS:
        if out is not None:
            raise SweepError(Mistake(f"{form} is printed, not written", path="--out", remedy="redirect the output"))
        if iterations is not None:
            raise SweepError(without_effect(["iterations"], f"with --format {form}"))
        more = ("recompute",) if form == "flags" else ()
        click.echo(_text([_row(record, metric, more) for record in records], form, metric), nl=False)
        return 0
    made = [export_trainer.made(record, form, iterations, out) for record in records]
    if out is not None:
        for path in export_trainer.write(made, out):
            click.echo(str(path))
    else:
        click.echo(export_trainer.text(made), nl=False)
    return 0


def _winners(
    sources: Sequence[Path], metric: str, expression: str | None, models: Sequence[str], widths: Sequence[int]
) -> list[Row]:
    """The best configuration's record per cell, as JSON values, models from small to large."""
    import analysis
    from analysis.derive.best import NEEDED, model_order
    from analysis.filters import names_in
    from analysis.heatmap.draw import HEAVY
    from analysis.metrics import metric_named
    from sweep.cli.results import _places

    metric_named(metric)
    places, _ = _places(tuple(sources))
    asked = [] if expression is None else names_in(expression)
    records = analysis.load(places, [*NEEDED, *(name for name in asked if name not in NEEDED)])
    matching = records if expression is None else analysis.keep(records, expression)
    found = analysis.best_per_cell(matching, metric)
    order = model_order(records, list(dict.fromkeys(found["model"])))
    wanted = found[(found["model"].isin(models) | (not models)) & (found["nodes"].isin(widths) | (not widths))]
    if wanted.empty:
        cells = ", ".join(f"{model} on {nodes}" for model, nodes in found[["model", "nodes"]].itertuples(index=False))
        fact = f"no measured configuration has {metric}" if found.empty else "no such cell was measured"
        raise SweepError(Mistake(fact, remedy=f"measured: {cells}" if cells else "another --metric or --filter"))
    light = wanted.drop(columns=[name for name in HEAVY if name in wanted])
    rows: list[Row] = json.loads(light.to_json(orient="records", double_precision=15))
    return sorted(rows, key=lambda row: (order.index(row["model"]), row["nodes"]))


def _row(record: Mapping[str, Any], metric: str, more: Sequence[str] = ()) -> Row:
    """The exported columns of a cell."""
    names = ("model", "nodes", *LAYOUT, *more)
    row = {name: record[name] for name in names} | {metric: record["value"]}
    return row | {name: record[name] for name in ("peak_memory_bytes", "run_id")}


def _text(rows: Sequence[Row], form: str, metric: str) -> str:
    if form == "flags":
        return _flags(rows, metric)
    return {"json": _json, "csv": _csv, "markdown": _markdown}[form](rows)


def _json(rows: Sequence[Row]) -> str:
    return json.dumps(rows, indent=1) + "\n"


def _csv(rows: Sequence[Row]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _markdown(rows: Sequence[Row]) -> str:
    """Numbers right-aligned, unrounded; a bar in a name is escaped, since it would end the cell."""
    lines = [" | ".join(rows[0]), " | ".join("---" if name in ("model", "run_id") else "---:" for name in rows[0])]
    lines += [" | ".join("" if v is None else str(v).replace("|", "\\|") for v in row.values()) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def _flags(rows: Sequence[Row], metric: str) -> str:
    """One line of shell arguments per cell, after a comment that names the cell."""
    import shlex

    lines = []
    for row in rows:
        words = [f"--{name.replace('_', '-')}={row[name]}" for name in (*LAYOUT, "recompute") if row[name] is not None]
        lines += [f"# {row['model']} on {row['nodes']} nodes: {metric} {row[metric]:.6g}", shlex.join(words)]
    return "\n".join(lines) + "\n"
