"""`sweep export`: the best configuration of each cell, as a table or in a trainer's own format."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, SweepGroup, without_effect
from sweep.cli.names import metric_option, name_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import all_results, origin_of
from sweep.contract import LAYOUT
from sweep.errors import Mistake, SweepError
from sweep.library.winners import SIMULATED, Row, complete, rounded, winners
from sweep.plugins import trainer_names

if TYPE_CHECKING:
    from collections.abc import Sequence

AS_FLAGS = ("dtype", "compile", "sequence_length", "global_batch_tokens")
FORMS = ("json", "csv", "markdown", "flags")
"""Our own formats; any other name is a trainer's."""


@click.group(cls=SweepGroup, short_help="The best configuration of each cell: JSON, CSV, a trainer's own format.")
def export() -> None:
    """Export results for other programs.

    \b
    Examples:
      sweep export best
      sweep export best sweeps/first --format markdown
    """


@export.command(cls=SweepCommand, short_help="The best configuration of each cell.")
@click.argument("sources", metavar="[DIR_OR_PARQUET]...", nargs=-1, type=InputPath())
@name_option(
    "--format", "form", kind="format", names=lambda: (*FORMS, *trainer_names()), default="json", show_default=True,
    help="Ours, or a trainer's.",
)  # fmt: skip
@metric_option()
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only matching records, e.g. "zero <= 1".')
@click.option("--model", "models", multiple=True, help="Only this model's cells. Repeatable.")
@click.option("--nodes", "widths", type=int, multiple=True, help="Only cells with this many nodes. Repeatable.")
@click.option("--iterations", type=click.IntRange(1), help="For a trainer's format. Default: as measured.")
@click.option("--out", type=OutputPath(directory=True), help="For a trainer's format: directory for its files.")
@click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True,
    help="For a trainer's format: its parameter, such as root=DIR. Repeatable.",
)  # fmt: skip
@click.option("--skip", is_flag=True, help="For a trainer's format: leave out cells that it cannot run, and list them.")
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
    params: tuple[str, ...],
    skip: bool,
) -> int:
    """Print the best configuration of each cell that was measured.

    A trainer's format is its adapter's output for the run: configuration files and command.

    \b
    Examples:
      sweep export best
      sweep export best results.parquet --format markdown --metric mfu
      sweep export best sweeps/first --format flags --model 8B --nodes 4
      sweep export best sweeps/first --format TRAINER --out configs
      sweep export best sweeps/first --format TRAINER --param root=/shared/checkout
    """
    from sweep.cli import export_trainer

    if form not in FORMS:
        export_trainer.check(form, FORMS)
    found = all_results(sources)
    records = winners([place for place, _ in found], metric, expression, models, widths)
    if form in FORMS:
        if out is not None:
            raise SweepError(Mistake(f"{form} is printed, not written", path="--out", remedy="redirect the output"))
        if wrong := without_effect(["iterations", "skip", "params"], f"with --format {form}"):
            raise SweepError(wrong)
        click.echo(_text([complete(record, metric) for record in records], form, metric), nl=False)
        return 0
    given = export_trainer.parameters(params, form)
    origin = origin_of([sweep for _, sweep in found])
    made, mistakes = export_trainer.made_of(records, form, iterations, out, given, origin)
    if mistakes and not (skip and made):
        remedy = "--skip exports the others" if made else '--filter chooses among what it has, e.g. --filter "cp == 1"'
        raise SweepError([replace(mistake, remedy=mistake.remedy or remedy) for mistake in mistakes])
    written = export_trainer.text(made) if out is None else "".join(f"{p}\n" for p in export_trainer.write(made, out))
    for mistake in mistakes:
        click.echo(f"left out: {mistake}", err=True)
    for note in (f"{cell.cell}: {cell.note}" for cell in made if cell.note):
        click.echo(note, err=True)
    click.echo(written, nl=False)
    return 0


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
    writer.writerows([{name: _cell(value) for name, value in row.items()} for row in rows])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A value in a table: rounded for people; mappings and lists as JSON."""
    return json.dumps(value) if isinstance(value, dict | list) else rounded(value)


def _markdown(rows: Sequence[Row]) -> str:
    """Numbers right-aligned, as people read them; a bar in a name is escaped, since it would end the cell."""
    from analysis.metrics import memory_text

    texts = {"peak_memory_bytes": memory_text, "mfu": "{:.1%}".format, "margin": "{:.1%}".format}
    numeric = {name for name in rows[0] if any(type(row[name]) in (int, float) for row in rows)}
    heads = [name.removesuffix("_bytes") for name in rows[0]]
    lines = [" | ".join(heads), " | ".join("---:" if name in numeric else "---" for name in rows[0])]
    for row in rows:
        cells = ["" if v is None else str(texts.get(name, _cell)(v)).replace("|", "\\|") for name, v in row.items()]
        lines.append(" | ".join(cells))
    return "".join(f"| {line} |\n" for line in lines)


def _flags(rows: Sequence[Row], metric: str) -> str:
    """One line of shell arguments per cell, after comments that name the cell and judge its value."""
    import shlex

    from analysis.metrics import memory_text
    from sweep.cli import export_trainer

    lines = []
    for row in rows:
        made = {name: row[name] for name in (*LAYOUT, *AS_FLAGS) if row[name] is not None}
        words = [f"--{name.replace('_', '-')}={_flag(value)}" for name, value in (made | row["params"]).items()]
        environment = [export_trainer.assignment(name, str(value)) for name, value in row["env"].items()]
        verdict_text = [f"{metric} {row[metric]:.6g}", row["confidence"], plural(row["repeats"], "run")]
        verdict_text += [f"peak memory {memory_text(row['peak_memory_bytes'])}"] if row["peak_memory_bytes"] else []
        verdict_text += [f"MFU {row['mfu']:.1%}"] if row["mfu"] is not None else []
        verdict_text += [SIMULATED] * row["simulated"] + row["notes"]
        place = f"{row['model']} on {plural(row['nodes'], 'node')} of {row['gpus_per_node']} {row['gpu'] or 'GPUs'}"
        lines += [f"# {place}, {row['run_id']}: {'; '.join(verdict_text)}"]
        lines += [" ".join([*environment, shlex.join(words)])]
    return "\n".join(lines) + "\n"


def _flag(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
