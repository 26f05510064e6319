"""`sweep archive` and `unarchive`: one compressed file of a sweep, for a support ticket or the record; and back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.cli.options import directory_argument, json_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import chosen_sweep


@click.command(cls=SweepCommand)
@directory_argument
@click.option("--out", type=OutputPath(), help="The archive. Default: the sweep's name with .tar.zst, here.")
@click.option(
    "--logs",
    type=click.Choice(["failed", "all", "none"]),
    default="failed",
    show_default=True,
    help="Attempts whose logs are packed.",
)
@json_option
def archive(directory: Path | None, out: Path | None, logs: str, as_json: bool) -> int:
    """Pack a sweep into one file without secrets: records, plan, grid, site, logs.

    Values of variables such as HF_TOKEN or WANDB_API_KEY, and tokens of known form, are replaced in all of it; look at
    the logs yourself before you publish them. `sweep unarchive` opens it, for reading.

    \b
    Examples:
      sweep archive
      sweep archive sweeps/first --out first.tar.zst --logs all
    """
    from rich.filesize import decimal

    from sweep.archive.pack import SUFFIX, pack
    from sweep.store.follow import read_state

    sweep = chosen_sweep(directory)
    path = out or Path(sweep.path.absolute().name + SUFFIX)
    packed = pack(sweep, read_state(sweep), path, logs)
    if as_json:
        counts = {"files": packed.files, "logs": packed.logs, "bytes": packed.bytes, "redacted": packed.redacted}
        click.echo(json.dumps({"archive": str(path)} | counts))
        return 0
    click.echo(f"{path}: {plural(packed.files, 'file')}, {packed.logs} of them logs, {decimal(packed.bytes)}")
    if packed.redacted:
        click.echo(f"secrets were removed from {packed.redacted} of them")
    return 0


@click.command(cls=SweepCommand)
@click.argument("file", metavar="ARCHIVE", type=InputPath())
@click.option(
    "--dir", "into", type=OutputPath(directory=True), help="The new directory. Default: the sweep's name, here."
)
@json_option
def unarchive(file: Path, into: Path | None, as_json: bool) -> int:
    """Extract an archive of `sweep archive` to a directory for status, best, heatmap, report, explain and logs.

    \b
    Examples:
      sweep unarchive first.tar.zst
      sweep unarchive first.tar.zst --dir sweeps/theirs
    """
    from sweep.archive.extract import extract

    directory = extract(file, into)
    click.echo(
        json.dumps({"directory": str(directory.path)})
        if as_json
        else f"{directory.path}: `sweep status {directory.path}`"
    )
    return 0
