"""`sweep report`: one self-contained HTML page of a sweep, and the same page updated while the sweep runs."""

from __future__ import annotations

import contextlib
import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.best import show_best
from sweep.cli.command import InputPath, OutputPath, SweepCommand, without_effect
from sweep.cli.learned import predictions
from sweep.cli.names import metric_option
from sweep.cli.options import anyway_option, json_option, site_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import all_results, origin_of, provenance_of
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd

    from analysis.report import Picture
    from analysis.report.history import HistorySection
    from sweep.cli.export_trainer import Origin
    from sweep.store.directory import SweepDir

EVERY_S = 15


@click.command(cls=SweepCommand, short_help="One self-contained HTML page: best configurations, confidence, all data.")
@click.argument("sources", metavar="[DIR_OR_PARQUET]...", nargs=-1, type=InputPath())
@click.option("--out", type=OutputPath(), help="Default: report.html of the sweep, or next to the file.")
@metric_option()
@click.option("--watch", is_flag=True, help="Rewrite the page until the sweep is done.")
@click.option("--every", "every_s", type=click.IntRange(min=2), default=EVERY_S, show_default=True, help="Seconds.")
@click.option("--figures/--no-figures", default=True, show_default=True, help="Draw the figures into the page.")
@click.option(
    "--history", "earlier", multiple=True, metavar="DIR_OR_PARQUET", type=InputPath(),
    help="An earlier sweep of the grid; repeat it for more.",
)  # fmt: skip
@click.option(
    "--predicted", "grid_file", metavar="GRID", type=InputPath(),
    help="A grid of which the cells that were not measured are predicted.",
)  # fmt: skip
@site_option
@anyway_option
@click.option("--open", "open_it", is_flag=True, help="Open the page in a browser.")
@json_option
def report(
    sources: tuple[Path, ...],
    out: Path | None,
    metric: str,
    watch: bool,
    every_s: int,
    figures: bool,
    earlier: tuple[Path, ...],
    grid_file: Path | None,
    site_given: str | None,
    anyway: bool,
    open_it: bool,
    as_json: bool,
) -> int:
    """Write one HTML file that opens from a file system with no network.

    First the best configuration of each cell and how to use it, then its confidence, all attempts to sort and filter,
    figures, failures with evidence, environment, grid. A sweep's new records are collected first.

    \b
    Examples:
      sweep report
      sweep report sweeps/first --out first.html
      sweep report results.parquet --metric reported_mfu
      sweep report sweeps/week-47 --history sweeps/week-45 --history sweeps/week-46
      sweep report sweeps/first --watch --open
      sweep report sweeps/small --predicted large.yaml
    """
    useless = [] if watch else without_effect(["every_s"], "without --watch")
    useless += [] if earlier else without_effect(["anyway"], "without --history")
    useless += [] if grid_file else without_effect(["site_given"], "without --predicted")
    if useless:
        raise SweepError(useless)
    sweeps, files = _sources(sources)
    target = out or (sweeps[0].path / "report.html" if sweeps else files[0].with_name("report.html"))
    if watch and (files or len(sweeps) != 1):
        raise SweepError(Mistake("--watch follows one sweep directory", path="--watch", remedy="name one, no files"))
    work = _Work(sweeps, files, target, metric, figures, _Earlier(earlier, anyway), _Unmeasured(grid_file, site_given))
    if watch:
        _watch(work, every_s, open_it)
    else:
        work.write(None)
    if open_it and not watch:
        click.launch(str(target))
    show_best([*(sweep.path for sweep in sweeps), *files], metric)
    click.echo(json.dumps(work.document()) if as_json else str(target))
    return 0


@dataclass(frozen=True)
class _Earlier:
    """Earlier sweeps of the grid, for the page's history."""

    places: Sequence[Path]
    anyway: bool
    """also where no run is shared, or model, sequence or batch differ"""


@dataclass(frozen=True)
class _Unmeasured:
    """A grid of which the cells without a measurement are predicted."""

    grid_file: Path | None
    site_given: str | None

    def predicted(self, places: Sequence[Path]) -> pd.DataFrame | None:
        """Its best layouts as these results predict them; None without a grid."""
        return None if self.grid_file is None else predictions(self.grid_file, self.site_given, tuple(places))[1]


class _Work:
    """Reads, builds and writes the page; stores what it wrote."""

    def __init__(
        self,
        sweeps: list[SweepDir],
        files: list[Path],
        target: Path,
        metric: str,
        figures: bool,
        earlier: _Earlier,
        unmeasured: _Unmeasured,
    ) -> None:
        self.sweeps, self.files, self.target, self.metric, self.figures = sweeps, files, target, metric, figures
        self.earlier, self.unmeasured = earlier, unmeasured
        self.attempts = 0

    def write(self, refresh_s: int | None) -> None:
        """Collect new records, build the page and replace the file atomically."""
        import analysis
        from analysis.derive.neighbours import STEPPED
        from analysis.report import About, build, columns_needed
        from sweep.library.heatmap import with_left_out
        from sweep.records.collect import collect

        for sweep in self.sweeps:
            collect(sweep)
        places = [*(sweep.path for sweep in self.sweeps), *self.files]
        records = analysis.load(places, columns_needed())
        plan = with_left_out(analysis.load_plan(places, STEPPED), places)
        grid, provenance = _origin(self.sweeps) if len(places) == 1 else (None, {})
        about = About(
            title=_title(records, places),
            sources=[str(place) for place in places],
            written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %Z"),
            grid=grid,
            provenance=provenance,
            refresh_s=refresh_s,
        )
        pictures = _pictures(places) if self.figures else []
        history = _history(self.earlier, places, self.metric, self.figures) if self.earlier.places else None
        usage = functools.partial(_usage, origin_of([*self.sweeps, *(None for _ in self.files)]))
        page = build(
            records, plan, about, metric=self.metric, usage=usage, pictures=pictures, history=history,
            predicted=self.unmeasured.predicted(places) if len(records) else None,
        )  # fmt: skip
        _put(self.target, page)
        self.attempts = len(records)

    def document(self) -> dict[str, Any]:
        """The JSON output, for scripts."""
        return {"path": str(self.target), "attempts": self.attempts, "bytes": self.target.stat().st_size}


def _sources(given: tuple[Path, ...]) -> tuple[list[SweepDir], list[Path]]:
    """Sweep directories (the newest if none is named) and results files."""
    found = all_results(given)
    return [sweep for _, sweep in found if sweep is not None], [file for file, sweep in found if sweep is None]


def _watch(work: _Work, every_s: int, open_it: bool) -> None:
    """Write the page whenever something was appended, the last time without its timer."""
    done = _follow(work.sweeps[0])
    finished, changed = done()
    first = True
    while not finished:
        if changed or first:
            first = False
            work.write(every_s)
            click.echo(f"{work.target}: {plural(work.attempts, 'attempt')}", err=True)
            if open_it:
                click.launch(str(work.target))
                open_it = False
        time.sleep(every_s)
        finished, changed = done()
    work.write(None)
    if open_it:
        click.launch(str(work.target))


def _follow(directory: SweepDir) -> Callable[[], tuple[bool, bool]]:
    """A function that polls the sweep: (is it done, was anything appended since the last poll)."""
    from sweep.store.follow import FollowedSweep
    from sweep.store.sweep import open_sweep

    followed = FollowedSweep(open_sweep(directory.path))

    def poll() -> tuple[bool, bool]:
        events = followed.refresh()
        followed.refresh_plans()
        return followed.at_rest, events > 0

    return poll


def _origin(sweeps: list[SweepDir]) -> tuple[str | None, dict[str, Any]]:
    """The grid as the user wrote it, and the provenance."""
    if not sweeps:
        return None, {}
    provenance = provenance_of(sweeps[0])
    grid = provenance.get("grid") or (sweeps[0].grid.read_text() if sweeps[0].grid.is_file() else None)
    further = [sweeps[0].grid_of(plan) for plan in sweeps[0].plans()[1:]]
    added = "".join(f"\n# {path.name}, added by `sweep launch --add`:\n{path.read_text()}" for path in further)
    return f"{grid or ''}{added}" if added else grid, provenance


def _title(records: pd.DataFrame, places: list[Path]) -> str:
    """The sweep names in the records, otherwise the file names."""
    named = list(dict.fromkeys(str(name) for name in records["sweep_name"].dropna()))
    names = named or [place.stem for place in places]
    return " + ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _pictures(places: list[Path]) -> list[Picture]:
    """The figures of the registry, drawn."""
    from analysis.figures import load_tables
    from analysis.report.figures import pictures_of

    return pictures_of(load_tables(places))


def _history(earlier: _Earlier, places: list[Path], metric: str, figures: bool) -> HistorySection:
    """The section on earlier sweeps. Raises SweepError where one cannot be compared with the next."""
    import analysis
    from analysis.compare import columns_needed
    from analysis.compare.history import history
    from analysis.report.history import section_of

    columns = [*columns_needed(), "started_at"]
    before = [place for place, _ in all_results(earlier.places)]
    tables = [*(analysis.load(place, columns) for place in before), analysis.load(places, columns)]
    names = [*map(str, earlier.places), " + ".join(map(str, places))]
    simulated = any(table["simulated"].fillna(False).any() for table in tables)
    try:
        found = history(tables, names, metric=metric, anyway=earlier.anyway)
    except SweepError as error:
        raise SweepError([replace(one, path=one.path or "--history") for one in error.mistakes]) from None
    return section_of(found, simulated=simulated, picture=figures)


def _usage(origin: Origin, cell: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Texts to copy: the layout, a grid, and the trainer's own configuration if its adapter accepts the run."""
    from analysis.report.usage import plain_record, usage_of
    from sweep.cli import export_trainer

    texts, workload = list(usage_of(cell)), str(cell.get("workload"))
    with contextlib.suppress(SweepError):  # no adapter for that workload, or the record lacks values
        export_trainer.check(workload, ())
        made = export_trainer.made(plain_record(cell), workload, None, None, {}, origin)
        texts.append((f"as {workload} takes it", export_trainer.text([made])))
    return texts


def _put(target: Path, page: str) -> None:
    from sweep.files import write_whole

    write_whole(target, page)
