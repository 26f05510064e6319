"""`sweep archive`: one compressed file of a sweep, for a support ticket or the record; and back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.command import OutputPath, SweepCommand, refuse
from sweep.cli.names import directory_argument, json_option
from sweep.cli.sources import chosen_sweep
from sweep.errors import Mistake, plural


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

    from sweep.archive import pack
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
    from sweep.archive import extract

    unnamed = Mistake("no archive is named", path="--open", remedy="`sweep archive FILE --open`")
    refuse(["logs"], "with --open", *([unnamed] if archive is None else []))
    assert archive is not None
    sweep = extract(archive, out)
    click.echo(json.dumps({"directory": str(sweep.path)}) if as_json else f"{sweep.path}: `sweep status {sweep.path}`")
    return 0
