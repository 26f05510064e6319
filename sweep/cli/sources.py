"""What a command reads: the sweep that is meant, and results in a sweep directory or a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.errors import SweepError
from sweep.files import json_of, read_text

if TYPE_CHECKING:
    from sweep.library.trainer_format import Origin
    from sweep.store.directory import SweepDir


def chosen_sweep(given: Path | None) -> SweepDir:
    """The sweep named, or the newest under the working directory, which is then printed on stderr.

    Raises SweepError where there is none.
    """
    from sweep.store.directory import find_sweep

    directory = find_sweep(given)
    if given is None:
        click.echo(f"sweep: {_short(directory.path)}", err=True)
    return directory


def named(sources: Sequence[Path]) -> tuple[Path, ...]:
    """The sources; without any, the newest sweep, which is then printed on stderr."""
    return tuple(sources) or (chosen_sweep(None).path,)


def origin_of(directories: Sequence[SweepDir | None]) -> Origin:
    """Where the one sweep that was named was measured; not known of a file, or of several sources."""
    from sweep.inputs.load import load_site
    from sweep.library.trainer_format import Origin
    from sweep.store.place import is_own

    if len(directories) != 1 or (directory := directories[0]) is None:
        return Origin()
    stated = provenance_of(directory).get("directory")
    site = load_site(given=str(directory.site)) if directory.site.is_file() else None
    return Origin(site, Path(stated) if isinstance(stated, str) and stated else None, own=is_own(directory))


def provenance_of(directory: SweepDir) -> dict[str, Any]:
    """What `provenance.json` states. Raises SweepError where it is damaged."""
    try:
        stated: dict[str, Any] = json_of(read_text(directory.provenance, "provenance"), directory.provenance)
    except SweepError as error:
        raise SweepError([replace(one, remedy="it is written once: restore it") for one in error.mistakes]) from error
    return stated


def _short(path: Path) -> Path:
    """Relative to the working directory where it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
