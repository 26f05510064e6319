"""`sweep import`, `track` and `archive`: results from elsewhere, to a tracker, or as one file for others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.best import show_best
from sweep.cli.command import InputPath, OutputPath, SweepCommand, refuse
from sweep.cli.names import directory_argument, json_option, name_option
from sweep.cli.sources import chosen_sweep
from sweep.errors import Mistake, SweepError, plural
from sweep.plugins import TRACKER
from sweep.stated import shell_word

if TYPE_CHECKING:
    from sweep.store.sweep import Sweep


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


@click.command(cls=SweepCommand)
@directory_argument
@name_option("--to", "name", kind="tracker", names=TRACKER.names, required=True, help="The tracker.")
@click.option("--project", help="Default: the name of the grid.")
@json_option
def track(directory: Path | None, name: str, project: str | None, as_json: bool) -> int:
    """Send every finished run to a tracker: configuration, metrics and iterations, and the heatmap with the last one.

    Each run is sent once, while the sweep runs or after it. Weights & Biases works offline unless WANDB_MODE says
    otherwise. MLflow writes to a file in the sweep directory, or to MLFLOW_TRACKING_URI.

    \b
    Examples:
      sweep track --to mlflow
      sweep track sweeps/first --to wandb --project scaling
      WANDB_MODE=online sweep track sweeps/first --to wandb
    """
    from sweep.store.sweep import open_sweep
    from sweep.trackers.tracking import send

    sweep = open_sweep(chosen_sweep(directory).path)
    tracker = TRACKER.find(name)(project or sweep.grid.name, sweep.directory.path)
    sent = send(sweep.directory, sweep.sweep_id, tracker, picture=lambda: _picture(sweep))
    if as_json:
        click.echo(json.dumps({"tracker": name, "destination": tracker.destination, **sent._asdict()}))
    if sent.error is not None:
        click.echo(f"error: {sent.error}; {plural(sent.left, 'run')} left: try again", err=True)
        return 1
    click.echo(f"{sent.new} of {plural(sent.known, 'run')} new; {tracker.hint}", err=True)
    return 0


def _picture(sweep: Sweep) -> Path | None:
    """The heatmap as it is now, or None if nothing can be drawn yet."""
    from sweep.library.winners import draw_heatmap

    try:
        return draw_heatmap([sweep.directory.path])[0]
    except SweepError as error:
        click.echo(f"no heatmap for the tracker: {error}", err=True)
        return None


@click.command(cls=SweepCommand)
@directory_argument
@click.option("--out", type=OutputPath(), help="The file, or with --open the new directory. Default: the sweep's name.")
@click.option(
    "--logs",
    type=click.Choice(["failed", "all", "none"]),
    default="failed",
    show_default=True,
    help="Attempts whose logs are packed.",
)
@click.option("--open", "unpack", is_flag=True, help="Extract the archive to a directory.")
@json_option
def archive(directory: Path | None, out: Path | None, logs: str, unpack: bool, as_json: bool) -> int:
    """Pack a sweep into one file without secrets: records, plan, grid, site, logs.

    Values of variables such as HF_TOKEN or WANDB_API_KEY, and tokens of known form, are replaced in all of it; look at
    the logs yourself before you publish them. status, best, heatmap, report, compare, explain and logs read the file as
    they read a directory; --open extracts it for good.

    \b
    Examples:
      sweep archive
      sweep archive sweeps/first --out first.tar.zst --logs all
      sweep archive first.tar.zst --open --out sweeps/theirs
    """
    if unpack:
        return _open(directory, out, as_json)
    from rich.filesize import decimal

    from sweep.store.archive import pack
    from sweep.store.directory import ARCHIVE_SUFFIX
    from sweep.store.snapshot import read_state

    chosen = chosen_sweep(directory)
    path = out or Path(chosen.path.absolute().name + ARCHIVE_SUFFIX)
    packed = pack(chosen, read_state(chosen), path, logs)
    if as_json:
        counts = {"files": packed.files, "logs": packed.logs, "bytes": packed.archive_bytes}
        about = {"redacted": packed.redacted, "left_out": packed.left_out}
        click.echo(json.dumps({"archive": str(path), **counts, **about}))
        return 0
    click.echo(f"{path}: {plural(packed.files, 'file')}, {packed.logs} of them logs, {decimal(packed.archive_bytes)}")
    if packed.redacted:
        click.echo(f"secrets were removed from {packed.redacted} of them")
    if packed.left_out:
        click.echo(f"{plural(len(packed.left_out), 'file')} not packed, such as {packed.left_out[0]}", err=True)
    return 0


def _open(archive: Path | None, out: Path | None, as_json: bool) -> int:
    from sweep.store.archive import extract

    unnamed = Mistake("no archive is named", path="--open", remedy="`sweep archive FILE --open`")
    refuse(["logs"], "with --open", *([unnamed] if archive is None else []))
    assert archive is not None
    sweep = extract(archive, out)
    click.echo(json.dumps({"directory": str(sweep.path)}) if as_json else f"{sweep.path}: `sweep status {sweep.path}`")
    return 0
