"""`sweep history`: one grid measured several times; what became slower since when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import OutputPath, SweepCommand
from sweep.cli.options import comparison_options, json_option
from sweep.cli.sources import all_results
from sweep.library.winners import SIMULATED

if TYPE_CHECKING:
    from analysis.compare.history import CellHistory, History


@click.command(cls=SweepCommand)
@comparison_options
@click.option("--out", type=OutputPath(), help="Draw it too: PNG, SVG or PDF.")
@json_option
def history(
    a: Path,
    b: Path,
    more: tuple[Path, ...],
    metric: str,
    min_slowdown: float | None,
    level: float,
    noise: float | None,
    anyway: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Compare several sweeps of one grid over time: weeks, versions, nodes, a maintenance.

    Oldest first (by their first attempt), each against the one before and the last against the first, which finds what
    came in small steps. A star marks what is more than noise, corrected for the number of comparisons.

    \b
    Examples:
      sweep history sweeps/week-*
      sweep history sweeps/week-45 sweeps/week-46 sweeps/week-47 --out history.png
      sweep history baseline.parquet sweeps/tonight --fail-if-slower 3%
    """
    import analysis
    from analysis.compare import columns_needed
    from analysis.compare.history import history as history_of
    from analysis.heatmap.draw import check_format

    if out is not None:
        check_format(out)
    sources = (a, b, *more)
    places = [place for place, _ in all_results(sources)]
    tables = [analysis.load(place, [*columns_needed(), "started_at"]) for place in places]
    names = [str(source) for source in sources]
    found = history_of(tables, names, metric=metric, level=level, noise=noise, anyway=anyway)
    simulated = [name for name, table in zip(names, tables, strict=True) if table["simulated"].fillna(False).any()]
    if out is not None:
        from analysis.figures.history import draw
        from analysis.heatmap.draw import save_figure

        save_figure(draw(found, simulated=bool(simulated)), out)
    slower = found.slower_now(min_slowdown) if min_slowdown is not None else []
    if as_json:
        document = {"simulated": simulated, "picture": str(out) if out else None, **found.document()}
        failing = {"slower": [[one.model, one.nodes] for one in slower], "failed": bool(slower)}
        click.echo(json.dumps({**document, "fail_if_slower": min_slowdown, **failing}))
    else:
        if simulated:
            click.echo(f"{', '.join(simulated)}: {SIMULATED}")
        click.echo("\n".join([*_sweeps(found), *_table(found), *_regressions(found)]))
        if out is not None:
            click.echo(str(out))
    return 1 if slower else 0


def _sweeps(found: History) -> list[str]:
    """The sweeps by number, when they began, and what changed."""
    from analysis.figures.history import date

    lines = []
    for at, one in enumerate(found.sweeps, 1):
        began = "" if one.started_at is None else f"{date(one.started_at)}  "
        changed = "".join(f"; {what}: {before} -> {now}" for what, before, now in one.changed)
        lines.append(f"{at:>3}  {began}{one.name}{changed}")
    return lines


def _table(found: History) -> list[str]:
    """A line per cell: its best value in each sweep, a star where it differs from the one before beyond noise."""
    numbers = range(1, len(found.sweeps) + 1)
    width = max(5, *(len(cell.model) for cell in found.cells))
    lines = [f"{found.metric.label}; *: more than noise, against the sweep before; last against first at the end"]
    lines.append(f"  {'model':{width}} {'nodes':>5}" + "".join(f" {at:>10}" for at in numbers) + "  change")
    return lines + [f"  {cell.model:{width}} {cell.nodes:>5}{_values(cell, found)}" for cell in found.cells]


def _values(cell: CellHistory, found: History) -> str:
    from analysis.metrics import number

    words = []
    for value, step in zip(cell.values, cell.steps, strict=True):
        text = "–" if value is None else number(value * found.metric.factor)
        star = "*" if step is not None and step.verdict in ("better", "worse", "lost") else " "
        words.append(f" {text + star:>10}")
    change = cell.change(found.level)
    return "".join(words) + f"  {change}".rstrip()


def _regressions(found: History) -> Sequence[str]:
    regressions = found.regressions()
    if not regressions:
        return ["no cell became worse beyond noise"]
    return [f"{len(regressions)} worse beyond noise or lost:", *(f"  {one.text(found.level)}" for one in regressions)]
