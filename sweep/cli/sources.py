"""What a command reads: the sweep that is meant, and results in a sweep directory or a Parquet file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.errors import Mistake, SweepError
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
        below = directory.path.is_relative_to(Path.cwd())
        click.echo(f"sweep: {directory.path.relative_to(Path.cwd()) if below else directory.path}", err=True)
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


CANDIDATES_SHOWN = 20
NEAREST_SHOWN = 5


Label = Callable[[str], str]


def find_run(known: Sequence[str], words: str, file: Path, label: Label = lambda _: "") -> str:
    """The one run_id that is ``words`` or has it as a part. ``label``: text after each run in a list of candidates.

    Raises SweepError that lists the candidates if there are several, or the nearest names if there is none.
    """
    if words in known:
        return words
    matching = [run_id for run_id in known if words in run_id]
    if not matching or not words:
        remedy = f"nearest: {', '.join(_nearest(known, words))}" if known else "the plan has no run"
        fact = f"no run has {words[:80]!r} in its run_id, and no directory has that name"
        raise SweepError(Mistake(fact, file=str(file), remedy=remedy))
    if len(matching) > 1:
        shown = "".join(f"\n  {run_id}{label(run_id)}" for run_id in matching[:CANDIDATES_SHOWN])
        rest = f"\n  … and {len(matching) - CANDIDATES_SHOWN} more" if len(matching) > CANDIDATES_SHOWN else ""
        fact = f"{words!r} is a part of {len(matching)} run_ids; give a longer part:{shown}{rest}"
        raise SweepError(Mistake(fact, file=str(file)))
    return matching[0]


def find_attempt(known: Sequence[str], words: str, file: Path, label: Label = lambda _: "") -> tuple[str, int | None]:
    """As ``find_run``, and the attempt that is named with the run, as in llama-8b-n4.2; None if none is."""
    match = re.fullmatch(r"(.+)\.([1-9]\d*)", words)
    if match is None or any(words in run_id for run_id in known):
        return find_run(known, words, file, label), None
    return find_run(known, match[1], file, label), int(match[2])


def _nearest(known: Sequence[str], words: str) -> list[str]:
    """The run_ids most similar to the words; only parts as long as the words are compared, since users type a part.

    So ``sweep.errors.nearest``, which compares whole names, would find none.
    """
    near = difflib.SequenceMatcher(b=words.lower(), autojunk=False)

    def likeness(run_id: str) -> float:
        near.set_seq1(run_id[: len(words) + 2].lower())
        return -near.quick_ratio()

    return sorted(known, key=likeness)[:NEAREST_SHOWN]
