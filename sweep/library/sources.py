"""What is read: a sweep as it is now, and results in a sweep directory or a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import Mistake, SweepError, file_mistake
from sweep.files import check_readable

if TYPE_CHECKING:
    from sweep.records.collect import Collected
    from sweep.store.directory import SweepDir
    from sweep.store.sweep import Sweep

METRIC = "tokens_per_second_per_gpu"
"""The default metric that ranks configurations: ``analysis.metrics.DEFAULT_METRIC``, without its imports"""
TEXT_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".xlsx", ".txt")


def readable(path: Path | str) -> Path:
    """A path that the user names. Raises SweepError where it exists and cannot be read, or is no file or directory."""
    path = Path(path)
    try:
        check_readable(path)
    except OSError as error:
        raise SweepError(file_mistake(error) or str(error)) from error
    return path


def opened(source: Path | str) -> Path:
    """A directory or a results file as it is; of an archive, its sweep in a directory that is gone with this process.

    Raises SweepError where it cannot be read.
    """
    from sweep.store.archive import is_archive, opened

    path = readable(source)
    return opened(path).path if is_archive(path) else path


def output_folder(place: Path, directory: SweepDir | None, own: str = "") -> Path:
    """Where pictures and pages of collected results go by default: the sweep's folder ``own``; next to a results file;
    of an archive or another user's sweep, the working directory.
    """
    from sweep.store.place import is_temporary

    if directory is None:
        return place.parent
    return Path() if is_temporary(directory) else directory.path / own


def collect(directory: Path | str) -> Collected:
    """Bring `results.parquet` of a sweep up to date: one row per attempt. Raises SweepError where there is no sweep, or
    it is another user's.
    """
    from sweep.records.collect import collect
    from sweep.store.directory import find_sweep
    from sweep.store.sharing import check_mine

    sweep = find_sweep(Path(directory))
    check_mine(sweep.path)
    return collect(sweep)


def status(directory: Path | str, *, max_age_s: float = 0.0) -> Sweep:
    """The sweep with its state, sums (``tally``) and search, from its journals alone; ``refresh`` brings it up to date.

    ``max_age_s``: how old a running launcher's search result may be that is used again. Raises SweepError where there
    is no sweep.
    """
    from sweep.store.sweep import open_sweep

    sweep = open_sweep(opened(directory))
    sweep.max_age_s = max_age_s
    sweep.refresh()
    return sweep


def collected_results(sources: Sequence[Path]) -> list[tuple[Path, SweepDir | None]]:
    """(what holds the results, its directory) of each: a Parquet file as it is; of a sweep or an archive, ``collect``
    brings its results up to date first. Raises SweepError with every mistake.
    """
    results: list[tuple[Path, SweepDir | None]] = []
    mistakes: list[Mistake] = []
    for source in sources:
        try:
            results.append(_collected(source))
        except SweepError as error:
            mistakes += error.mistakes
    if mistakes:
        raise SweepError(mistakes)
    return results


def _collected(given: Path) -> tuple[Path, SweepDir | None]:
    from sweep.records.collect import collect
    from sweep.store.directory import find_sweep
    from sweep.store.place import view_of

    source = opened(given)
    if source.is_dir():
        directory = view_of(find_sweep(source))
        collect(directory)
        return directory.path, directory
    if not source.exists():
        raise SweepError(Mistake("no such results", file=str(source), remedy="a sweep directory or a Parquet file"))
    if source.suffix.lower() in TEXT_TABLES:
        remedy = f"`sweep import {source}` converts it"
        raise SweepError(Mistake("a table of its own format, not results", file=str(source), remedy=remedy))
    return source, None
