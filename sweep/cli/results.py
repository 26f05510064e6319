"""`sweep collect`, `heatmap` and `report`: from records to a table, a picture, and one self-contained HTML page."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.best import show_best
from sweep.cli.command import InputPath, OutputPath, SweepCommand, refuse
from sweep.cli.names import FiniteRange, directory_argument, json_option, metric_option
from sweep.cli.sources import chosen_sweep, named, origin_of, provenance_of
from sweep.errors import SweepError, first_names, plural
from sweep.files import read_text
from sweep.library.sources import collected_results, output_folder

if TYPE_CHECKING:
    from sweep.library.trainer_format import Origin
    from sweep.store.directory import SweepDir


@click.command(cls=SweepCommand)
@directory_argument
@json_option
def collect(directory: Path | None, as_json: bool) -> int:
    """Write the records of a sweep to results.parquet, one row per attempt.

    Only new records are read. The table may be deleted; this command rebuilds it.

    \b
    Examples:
      sweep collect
      sweep collect sweeps/first --json
    """
    from sweep.library.sources import collect as collect_records

    done = collect_records(chosen_sweep(directory).path)
    if as_json:
        click.echo(json.dumps({**vars(done), "path": str(done.path), "outcomes": dict(done.outcomes)}))
    else:
        words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(done.outcomes.items()))
        click.echo(
            f"{done.path}: {plural(done.attempts, 'attempt')} of {plural(done.runs, 'run')} ({words or 'none yet'})",
            err=True,
        )
    return 0


@click.command(cls=SweepCommand)
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=InputPath())
@click.option(
    "--out", type=OutputPath(), help="Output file (PNG, SVG or PDF). Default: figures/heatmap.png of the sweep."
)
@metric_option()
@click.option("--filter", "expression", metavar="EXPRESSION", help='Only matching records, e.g. "zero <= 1".')
@click.option(
    "--width",
    "width_in",
    type=FiniteRange(2, 60),
    default=7.0,
    show_default=True,
    help="Width in inches; 7 fits a page.",
)
@json_option
def heatmap(
    sources: tuple[Path, ...],
    out: Path | None,
    metric: str,
    expression: str | None,
    width_in: float,
    as_json: bool,
) -> int:
    """Draw the best configuration per model and node count. Blank cells state the reason.

    Several sweeps are drawn as one. New records are collected first.

    \b
    Examples:
      sweep heatmap
      sweep heatmap sweeps/first --metric mfu --out best.svg
      sweep heatmap results.parquet --filter "zero <= 1 and model in ('1B', '8B')"
      sweep heatmap sweeps/a sweeps/b --json
    """
    from sweep.library.winners import draw_heatmap

    target, drawn = draw_heatmap(named(sources), out, metric=metric, keep=expression, width_in=width_in)
    if as_json:
        click.echo(json.dumps({"path": str(target), "cells": drawn.rows()}))
    else:
        click.echo(str(target))
    return 0


@click.command(cls=SweepCommand)
@click.argument("sources", metavar="[SOURCE]... [NAME]...", nargs=-1, type=InputPath())
@click.option("--out", type=OutputPath(), help="Default: report.html of the sweep, or next to the file.")
@metric_option()
@click.option("--no-figures", is_flag=True, help="Write a page without figures, which is faster.")
@click.option(
    "--figures", "folder", metavar="FOLDER", type=OutputPath(directory=True),
    help="Write only figures, as files in this folder: those named, or all.",
)  # fmt: skip
@click.option(
    "--format", "ending", type=click.Choice(["png", "svg", "pdf"]), default="png", show_default=True,
    help="File format of the figures.",
)  # fmt: skip
@json_option
def report(
    sources: tuple[Path, ...],
    out: Path | None,
    metric: str,
    no_figures: bool,
    folder: Path | None,
    ending: str,
    as_json: bool,
) -> int:
    """Write one self-contained HTML file, or only the figures.

    First the best configuration of each cell and how to use it, then its confidence, all attempts to sort and filter,
    figures, failures with evidence, environment, grid. A sweep's new records are collected first.

    A figure whose data are missing reports so, in the picture and on stderr. An unknown NAME lists them all.

    \b
    Examples:
      sweep report
      sweep report sweeps/first --out first.html
      sweep report results.parquet --metric reported_mfu
      sweep report sweeps/first --figures pictures
      sweep report results.parquet scaling axes --figures paper --format pdf
    """
    if folder is not None:
        refuse(["out", "metric", "no_figures"], "with --figures")
        _write_figures(sources, folder, ending, as_json)
        return 0
    refuse(["ending"], "without --figures")
    given = collected_results(named(sources))
    directories, places = [one for _, one in given if one is not None], [place for place, _ in given]
    target = out or output_folder(*given[0]) / "report.html"
    attempts = _write_page(target, places, directories, metric, not no_figures)
    show_best(places, metric)
    document = {"path": str(target), "attempts": attempts, "bytes": target.stat().st_size}
    click.echo(json.dumps(document) if as_json else str(target))
    return 0


def _write_figures(sources: Sequence[Path], folder: Path, ending: str, as_json: bool) -> None:
    """Each named figure as a file: a source that is called as a figure names it."""
    import analysis
    from analysis import figures as drawing
    from analysis.heatmap.draw import save_figure

    names = [str(source) for source in sources if str(source) in drawing.FIGURES]
    places = [source for source in sources if str(source) not in drawing.FIGURES]
    drawing.named([str(source) for source in places if not source.exists()])  # raises SweepError for what it names
    records = analysis.load([place for place, _ in collected_results(named(places))], drawing.COLUMNS)
    written = []
    for name in drawing.named(names):
        drawn = drawing.draw(name, records)
        target = folder / f"{name}.{ending}"
        save_figure(drawn.figure, target)
        written.append({"name": name, "path": str(target), "caption": drawn.caption, "lacking": drawn.lacking})
        if not as_json:
            click.echo(str(target))
            if drawn.lacking is not None:
                click.echo(f"{name}: {drawn.lacking}", err=True)
    if as_json:
        click.echo(json.dumps(written))


def _write_page(target: Path, places: list[Path], directories: Sequence[SweepDir], metric: str, figures: bool) -> int:
    """Build the page and replace the file atomically; the number of attempts in it."""
    import analysis
    from analysis.derive.neighbours import STEPPED
    from analysis.figures import COLUMNS, FIGURES, draw
    from analysis.report import About, build, columns_needed
    from sweep.files import write_whole
    from sweep.state.parts import PARTS

    records = analysis.load(places, list(dict.fromkeys([*columns_needed(), *COLUMNS])))
    plan = analysis.load_plan(places, STEPPED)
    grid, provenance = _origin(directories) if len(places) == 1 else (None, {})
    from sweep.state.node_time import node_time
    from sweep.store.snapshot import read_state

    found: dict[str, Mapping[str, float]] = {}
    for directory in directories:
        prefix = f"{directory.path.name}/" if len(directories) > 1 else ""
        found |= {f"{prefix}{name}": parts for name, parts in node_time(read_state(directory), time.time()).items()}
    sweeps = [str(name) for name in records["sweep_name"].dropna().unique()]
    about = About(
        title=first_names(sweeps or [place.stem for place in places], 4, " + "),
        sources=[str(place) for place in places],
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z"),
        grid=grid,
        provenance=provenance,
        node_time=found,
        parts=PARTS,
    )
    page = build(
        records,
        plan,
        about,
        metric=metric,
        usage=functools.partial(_usage, origin_of(directories if len(places) == 1 else ())),
        pictures=[draw(name, records) for name in FIGURES] if figures else [],
    )
    write_whole(target, page.encode(errors="backslashreplace"))  # an escape in JSON may be half a character
    return len(records)


def _origin(directories: Sequence[SweepDir]) -> tuple[str | None, dict[str, Any]]:
    """The grid as the user wrote it, and the provenance."""
    if not directories:
        return None, {}
    provenance = provenance_of(directories[0])
    grid = provenance.get("grid") or _own_text(directories[0].grid)
    further = [directories[0].grid_of(plan) for plan in directories[0].plans()[1:]]
    added = "".join(f"\n# {path.name}, added by `sweep launch --add`:\n{_own_text(path)}" for path in further)
    return f"{grid or ''}{added}" if added else grid, provenance


def _own_text(path: Path) -> str:
    """The text of a sweep's file for a page that others read: of a link, which may lead to any file, none."""
    return read_text(path, "grid") if path.is_file() and not path.is_symlink() else ""


def _usage(origin: Origin, cell: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Texts to copy: the layout, a grid, and the trainer's own configuration if its adapter accepts the run."""
    from analysis.report.usage import plain_record, usage_of
    from sweep.library import trainer_format

    texts, workload = list(usage_of(cell)), str(cell.get("workload"))
    with contextlib.suppress(SweepError):  # no adapter for that workload, or the record lacks values
        made = trainer_format.made(plain_record(cell), workload, None, None, {}, origin)
        texts.append((f"as {workload} takes it", trainer_format.text([made])))
    return texts
