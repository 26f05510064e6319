"""`sweep archive`: one compressed file of a sweep, for a support ticket or the record; and back."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand, without_effect
from sweep.cli.options import json_option
from sweep.cli.sources import chosen_sweep
from sweep.errors import SweepError


@click.command(cls=SweepCommand, short_help="One compressed file of a sweep, without secrets; and back.")
@click.argument("source", metavar="[DIR_OR_ARCHIVE]", required=False, type=InputPath())
@click.option("--out", type=OutputPath(), help="The archive. Default: the sweep's name with .tar.zst, here.")
@click.option(
    "--logs",
    type=click.Choice(["failed", "all", "none"]),
    default="failed",
    show_default=True,
    help="Of which attempts.",
)
@click.option("--extract", is_flag=True, help="Extract an archive.")
@click.option("--dir", "into", type=OutputPath(directory=True), help="With --extract: the new directory.")
@json_option
def archive(source: Path | None, out: Path | None, logs: str, extract: bool, into: Path | None, as_json: bool) -> int:
    """Write what explains a sweep's results and failures to one file: records, plan, grid, site, logs.

    Values of variables such as HF_TOKEN or WANDB_API_KEY, and tokens of known form, are replaced in all of it; look at
    the logs yourself before you publish them. An extracted archive is for reading: status, best, heatmap, report,
    explain, logs.

    \b
    Examples:
      sweep archive
      sweep archive sweeps/first --out first.tar.zst --logs all
      sweep archive --extract first.tar.zst
    """
    if extract:
        return _extract(source, into, as_json)
    if mistakes := without_effect(["into"], "without --extract"):
        raise SweepError(mistakes)
    from sweep.archive.pack import SUFFIX, pack
    from sweep.store.follow import read_state

    sweep = chosen_sweep(source)
    path = out or Path(sweep.path.absolute().name + SUFFIX)
    packed = pack(sweep, read_state(sweep), path, logs)
    if as_json:
        counts = {"files": packed.files, "logs": packed.logs, "bytes": packed.bytes, "redacted": packed.redacted}
        click.echo(json.dumps({"archive": str(path)} | counts))
        return 0
    click.echo(f"{path}: {packed.files} files, {packed.logs} of them logs, {packed.bytes / 2**20:.1f} MiB")
    if packed.redacted:
        click.echo(f"secrets were removed from {packed.redacted} of them")
    return 0


def _extract(source: Path | None, into: Path | None, as_json: bool) -> int:
    from sweep.archive.extract import extract
    from sweep.errors import Mistake

    mistakes = without_effect(["out", "logs"], "with --extract")
    if source is None:
        mistakes.append(Mistake("no archive is named", path="--extract", remedy="sweep archive --extract FILE"))
    if mistakes or source is None:
        raise SweepError(mistakes)
    sweep = extract(source, into)
    click.echo(json.dumps({"directory": str(sweep.path)}) if as_json else f"{sweep.path}: `sweep status {sweep.path}`")
    return 0
