"""`sweep best`: the answer of a sweep on the screen or for other programs; the table after launch, import, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, refuse
from sweep.cli.names import json_option, metric_option, name_option
from sweep.cli.progress_text import unmeasured_text
from sweep.cli.sources import named, origin_of
from sweep.cli.terminal import console
from sweep.errors import Mistake, SweepError
from sweep.library.sources import METRIC, collected_results, status
from sweep.library.winners import FORMS, SIMULATED, Row, as_text, best_table, winners
from sweep.plugins import TRAINER

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sweep.library.trainer_format import Made


TABLE = "table"
WIDTH = 140
"""characters of a line where the output is no terminal"""


@click.command(cls=SweepCommand)
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=InputPath())
@name_option(
    "--format", "form", kind="format", names=lambda: (TABLE, *FORMS, *TRAINER.names()), default=TABLE,
    show_default=True, help="How to print it; a trainer's name: its configuration files and command.",
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
@click.option("--skip", is_flag=True, help="For a trainer's format: skip cells that it cannot run, and list them.")
@json_option
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
    as_json: bool,
) -> int:
    """Show the best configuration per model and node count: layout, speed, MFU, memory, margin and confidence.

    A winner is "clear" only with repeats: the iterations of one run say nothing about the next run. A sweep's new
    records are collected first.

    \b
    Examples:
      sweep best
      sweep best sweeps/first --model 8B
      sweep best results.parquet --metric mfu --json
      sweep best sweeps/first --format flags --model 8B --nodes 4
      sweep best sweeps/first --format TRAINER --out configs
      sweep best sweeps/first --format TRAINER --param root=/shared/checkout
    """
    from sweep.library import trainer_format

    form = "json" if as_json else form
    own = form in (TABLE, *FORMS)
    if own:
        refuse(["iterations", "out", "skip", "params"], f"with --format {form}")
    results = collected_results(named(sources))
    rows = winners([place for place, _ in results], metric, expression, models, widths)
    if form == TABLE:
        _print(rows, metric, to_stderr=False)
    elif own:
        click.echo(as_text(rows, form, metric), nl=False)
    else:
        given = trainer_format.parameters(params, form)
        origin = origin_of([directory for _, directory in results])
        made: list[Made] = []
        mistakes: list[Mistake] = []
        for row in rows:
            try:
                made.append(trainer_format.made(row, form, iterations, out, given, origin))
            except SweepError as error:
                mistakes += error.mistakes
        _print_made(made, mistakes, out, skip)
    for directory in (directory for _, directory in results if directory is not None):
        if note := unmeasured_text(status(directory.path).unmeasured(), directory.path):
            click.echo(note, err=True)
    return 0


def _print_made(made: Sequence[Made], mistakes: Sequence[Mistake], out: Path | None, skip: bool) -> None:
    """What the trainer takes, or the files written of it. Raises SweepError where it cannot run a cell."""
    from sweep.library import trainer_format

    if mistakes and not (skip and made):
        remedy = "--skip exports the others" if made else '--filter chooses among what it has, e.g. --filter "cp == 1"'
        raise SweepError([replace(mistake, remedy=mistake.remedy or remedy) for mistake in mistakes])
    written = trainer_format.text(made) if out is None else "".join(f"{p}\n" for p in trainer_format.write(made, out))
    for mistake in mistakes:
        click.echo(f"left out: {mistake}", err=True)
    for note in (f"{cell.cell}: {note}" for cell in made for note in (cell.note, cell.source) if note):
        click.echo(note, err=True)
    click.echo(written, nl=False)


def show_best(sources: Sequence[Path], metric: str = METRIC) -> bool:
    """Print the table on stderr, at the end of another command. False, and nothing, where no cell was measured."""
    try:
        rows = winners(sources, metric)
    except SweepError:
        return False
    _print(rows, metric, to_stderr=True)
    return True


def _print(rows: Sequence[Row], metric: str, *, to_stderr: bool) -> None:
    printer = console(to_stderr=to_stderr, width=WIDTH)
    printer.print(table(rows, metric, printer.width))


NARROW = 110
"""characters of a line below which the sentences stand under the table, and the table has a word for each"""
SURE = ("how sure", "sure")
"""headings of the column of sentences, and of words"""
WORDS = {
    "clear": ("clear", "beyond the spread between runs"),
    "leads": ("leads", "ahead, but not shown beyond the spread between runs"),
    "unknown": ("?", "the spread of its iterations is not known"),
    "alone": ("alone", "no other configuration of the same work was measured in the cell"),
}


def table(rows: Sequence[Row], metric: str = METRIC, width: int = NARROW) -> RenderableType:
    """The winners, with the marks that they need: whole for lines of ``width`` characters that are many, else short."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    wide = width >= NARROW
    title = "Best configuration per model and node count" + (
        f" ({SIMULATED})" if any(row["simulated"] for row in rows) else ""
    )
    heads, lines, under = best_table(rows, metric, None if wide else _word)
    found = Table(*(head if wide else head.replace("tokens/s", "tok/s") for head in heads), title=title)
    if not wide:
        from rich.box import SIMPLE_HEAD

        found.box, found.padding, found.show_edge = SIMPLE_HEAD, (0, 1, 0, 0), False
    for head, column in zip(heads[3:], found.columns[3:], strict=True):
        column.justify = "left" if head in SURE else "right"
        column.no_wrap = not wide
    found.columns[2].max_width = 40 if wide else 22
    for line in lines:
        found.add_row(*map(Text, line))
    verdicts = {row["verdict"] for row in rows} if not wide else set()
    legend = ["≈n: within noise of n other configurations"] if "tie" in verdicts else []
    legend += [f"{word}: {meaning}" for verdict, (word, meaning) in WORDS.items() if verdict in verdicts]
    return Group(found, *(Text(text) for text in legend), *(Text(text, style="yellow") for text in under))


def _word(row: Row) -> str:
    """How sure it is in a word: clear, ≈2 (ties with two others), leads, ?, alone."""
    if row["verdict"] == "tie":
        return f"≈{len(row['ties'])}"
    return WORDS[row["verdict"]][0]
