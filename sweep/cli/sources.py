"""What a command reads: the sweep that is meant, and results in a sweep directory or a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import input_path
from sweep.errors import Mistake, SweepError
from sweep.files import read_text

if TYPE_CHECKING:
    from sweep.cli.export_trainer import Origin
    from sweep.store.directory import SweepDir

TEXT_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".txt")


def chosen_sweep(directory: Path | None) -> SweepDir:
    """The sweep named, or the newest under the working directory, which is then printed on stderr.

    Raises SweepError where there is none.
    """
    from sweep.store.directory import find_sweep

    sweep = find_sweep(directory)
    if directory is None:
        click.echo(f"sweep: {_short(sweep.path)}", err=True)
    return sweep


def results_of(source: Path | None) -> tuple[Path, SweepDir | None]:
    """(what holds the results, its sweep): a Parquet file as it is; a sweep directory, its new records collected.

    The newest sweep if none is named. Raises SweepError where it is neither.
    """
    from sweep.records.collect import collect

    if source is None or input_path(source).is_dir():
        sweep = chosen_sweep(source)
        collect(sweep)
        return sweep.path, sweep
    if not source.exists():
        raise SweepError(Mistake("no such results", file=str(source), remedy="a sweep directory or a Parquet file"))
    if source.suffix.lower() in TEXT_TABLES:
        remedy = f"`sweep import {source}` converts it"
        raise SweepError(Mistake("a table of its own format, not results", file=str(source), remedy=remedy))
    return source, None


def all_results(sources: Sequence[Path]) -> list[tuple[Path, SweepDir | None]]:
    """``results_of`` each, or of the newest sweep. Raises SweepError with every mistake."""
    found: list[tuple[Path, SweepDir | None]] = []
    mistakes: list[Mistake] = []
    for source in sources or (None,):
        try:
            found.append(results_of(source))
        except SweepError as error:
            mistakes += error.mistakes
    if mistakes:
        raise SweepError(mistakes)
    return found


def origin_of(sweeps: Sequence[SweepDir | None]) -> Origin:
    """Where the one sweep that was named was measured; not known of a file, or of several sources."""
    from sweep.cli.export_trainer import Origin
    from sweep.inputs.load import load_site

    if len(sweeps) != 1 or sweeps[0] is None:
        return Origin()
    provenance_of(sweeps[0])  # an error where it is damaged
    site = load_site(given=str(sweeps[0].site)) if sweeps[0].site.is_file() else None
    return Origin(site, sweeps[0].launched_from())


def provenance_of(sweep: SweepDir) -> dict[str, Any]:
    """What `provenance.json` states. Raises SweepError where it is damaged."""
    try:
        found: dict[str, Any] = json.loads(read_text(sweep.provenance, "provenance"))
    except ValueError as error:
        remedy = "it is written once: restore it"
        raise SweepError(Mistake("is damaged", file=str(sweep.provenance), remedy=remedy)) from error
    return found


def _short(path: Path) -> Path:
    """Relative to the working directory where it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
