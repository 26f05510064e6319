"""`sweep import`: results measured elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.best import show_best
from sweep.cli.command import InputPath, OutputPath, SweepCommand, refuse
from sweep.cli.names import json_option
from sweep.errors import plural
from sweep.stated import shell_word


@click.command("import", cls=SweepCommand)
@click.argument("file", type=InputPath())
@click.option(
    "--map", "map_file", type=InputPath(), help="YAML file that maps the table's columns to those of records."
)
@click.option(
    "--suggest-map",
    "suggest",
    type=OutputPath(),
    help="Write a first map from the table's column names to this file, and import nothing.",
)
@click.option(
    "--out",
    type=OutputPath(endings=(".parquet", ".pq")),
    help="Default: FILE's name with the ending .results.parquet, in this directory.",
)
@json_option
def import_results(file: Path, map_file: Path | None, suggest: Path | None, out: Path | None, as_json: bool) -> int:
    """Convert a table of results from elsewhere to records, for heatmap, report, plan and compare.

    Units are checked and unknown columns are kept. MFU is recomputed from tokens/s and the model's shape; the source's
    own MFU is kept as reported_mfu. Implausible rows are marked as suspect. Without --map, the table must have the
    columns of records.

    \b
    Examples:
      sweep import mine.csv --suggest-map mine.yaml
      sweep import playbook_runs.csv --map examples/import/playbook.yaml
      sweep import runs.parquet --out results.parquet --json
    """
    from sweep.foreign.files import import_file, suggest_map

    if suggest is not None:
        refuse(["map_file", "out", "as_json"], "with --suggest-map")
        suggest_map(file, suggest)
        words = f"{shell_word(str(file))} --map {shell_word(str(suggest))}"
        click.echo(f"{suggest}: check it, then `sweep import {words}`", err=True)
        return 0
    target = out or Path(f"{file.stem}.results.parquet")
    done = import_file(file, map_file, target)
    if as_json:
        click.echo(json.dumps(done.document()))
        return 0
    for note in done.shown():
        click.echo(note, err=True)
    outcomes = ", ".join(f"{count} {word}" for word, count in done.outcomes.items())
    click.echo(f"{target}: {plural(done.rows, 'record')} ({outcomes}), {len(done.suspects)} suspect", err=True)
    if done.stated_again:
        click.echo(f"{plural(done.stated_again, 'row')} with the figures of another row: not counted again", err=True)
    heatmap, report = f"`sweep heatmap {target}` draws it", f"`sweep report {target}` writes a page"
    if show_best([target]):
        click.echo(f"next: {heatmap}, {report}", err=True)
    else:
        click.echo(f"no run has a speed: there is no best to draw; {report} of what is there", err=True)
    return 0
