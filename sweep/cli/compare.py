"""`sweep compare`: sweeps of one grid cell by cell, with significance; or one against a baseline: pass or fail."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import InputPath, SweepCommand, refuse
from sweep.cli.names import SHARE, anyway_option, json_option, metric_option
from sweep.cli.sources import named
from sweep.errors import Mistake, plural
from sweep.library import compare as library

if TYPE_CHECKING:
    from analysis.compare.baseline import Certificate, Workload
    from analysis.compare.comparison import CellPair, Comparison
    from analysis.compare.history import CellHistory, History

SHOWN = 20
"""lines of runs that are printed; --json has all"""


@click.command(cls=SweepCommand)
@click.argument("sources", metavar="SOURCE...", nargs=-1, type=InputPath())
@click.option(
    "--baseline",
    metavar="SOURCE",
    type=InputPath(),
    help="Check each workload of one sweep against these results.",
)
@click.option(
    "--within", type=SHARE, default=library.WITHIN, show_default=True, help="With --baseline: the tolerated slowdown."
)
@metric_option("Metric to compare.")
@click.option("--noise", type=SHARE, help="Run-to-run noise, such as 0.5%. Default: estimated from the runs.")
@anyway_option
@json_option
def compare(
    sources: tuple[Path, ...],
    baseline: Path | None,
    within: float,
    metric: str,
    noise: float | None,
    anyway: bool,
    as_json: bool,
) -> int:
    """Compare sweeps of one grid: a new NCCL, another trainer version, a replaced switch, last week and this week.

    Two, the old one first: each cell by its best configuration and by the runs that both have, and each run alone.
    More: each cell over time, oldest first, and since when it is slower. Changes within noise are not reported: noise
    is estimated from iterations and from run to run, and corrected for the number of comparisons.

    With --baseline: whether each workload of one sweep is as fast as there. A workload passes where the 95 % interval
    of its change is above the tolerated slowdown, fails where it is below, and is undecided between. Exits 1 on a
    regression: unless every workload of the baseline passes.

    \b
    Examples:
      sweep compare sweeps/nccl-2.26 sweeps/nccl-2.27
      sweep compare sweeps/week-*
      sweep compare sweeps/tonight --baseline good.parquet --within 3%
      sweep compare a.parquet b.parquet --metric peak_memory_bytes --json
    """
    if baseline is not None:
        return _check(sources, baseline, within, metric, noise, as_json)
    refuse(["within"], "without --baseline")
    history = library.compare(*sources, metric=metric, noise=noise, anyway=anyway)
    if as_json:
        click.echo(json.dumps(history.document()))
        return 0
    lines = [f"simulated, the times are made up: {', '.join(history.simulated)}"] if history.simulated else []
    lines += _comparison(history.whole) if len(history.names) == 2 else _history(history)
    click.echo("\n".join(lines))
    return 0


def _comparison(comparison: Comparison) -> list[str]:
    """Two sweeps as text: the changes, and one line for what did not change."""
    how = "estimated from the runs" if comparison.noise.estimated else "taken as given: too few runs to estimate it"
    lines = [f"{comparison.metric.label}; run-to-run noise of a change {comparison.noise.deviation:.2%} ({how})"]
    lines += [f"throughout: {name}: {a} -> {b}" for name, a, b in comparison.conditions]
    lines += _cells(comparison)
    changed = sorted(
        (run for run in comparison.runs if run.verdict in ("better", "worse")), key=lambda run: run.change.change
    )
    lines.append(f"{plural(len(comparison.runs), 'run')} in both: {len(changed)} changed")
    lines += _first([f"{run.change.text(comparison.level):27} {run.run_a}" for run in changed])
    for stopped, words in ((False, "fail in B"), (True, "stopped in B before they were measured")):
        lost = [run for run in comparison.lost if run.stopped is stopped]
        if lost:
            lines.append(f"{words} and worked in A: {plural(len(lost), 'configuration')}:")
            lines += _first([f"{run.run_a}: {run.outcome} {run.message}".rstrip() for run in lost])
    return lines


def _first(lines: list[str]) -> list[str]:
    more = [f"… and {len(lines) - SHOWN} more: --json"] if len(lines) > SHOWN else []
    return [f"  {line}" for line in (*lines[:SHOWN], *more)]


_WORDS = {
    "worse": "worse",
    "lost": "lost",
    "better": "better",
    "same": "the same within noise",
    "unclear": "not clear (the host had more work than cores)",
    "new": "only in B",
    "missing": "only in A",
}


def _cells(comparison: Comparison) -> list[str]:
    counts = Counter(cell.verdict for cell in comparison.cells)
    head = ", ".join(f"{counts[verdict]} {words}" for verdict, words in _WORDS.items() if counts[verdict])
    lines = [f"{plural(len(comparison.cells), 'cell')}: {head}"]
    if changed := comparison.changed_cells():
        width = max(5, *(len(cell.model) for cell in changed))
        lines.append(f"  {'model':{width}} {'nodes':>5} {'A':>9} {'B':>9}  best                      typical run")
        lines += [f"  {_cell(cell, comparison, width)}" for cell in changed]
    return lines


def _cell(cell: CellPair, comparison: Comparison, width: int) -> str:
    a, b = (comparison.metric.number(value) for value in (cell.value_a, cell.value_b))
    typical = f"{cell.typical.text(comparison.level)} ({plural(cell.pairs, 'run')})" if cell.typical else ""
    best = cell.best.text(comparison.level) if cell.best else cell.verdict
    return f"{cell.model:{width}} {cell.nodes:>5} {a:>9} {b:>9}  {best:25} {typical}".rstrip()


def _history(history: History) -> list[str]:
    """More than two: the sweeps with what changed, a line per cell, and what became worse."""
    lines = []
    for at, name in enumerate(history.dated()):
        changed = "".join(f"; {what}: {before} -> {now}" for what, before, now in history.changed(at))
        lines.append(f"{at + 1:>3}  {name}{changed}")
    cells = history.cells()
    width = max(5, *(len(cell.model) for cell in cells))
    numbers = "".join(f" {at + 1:>10}" for at in range(len(history.names)))
    lines.append(f"{history.metric.label}; *: more than noise, against the sweep before; last against first at the end")
    lines.append(f"  {'model':{width}} {'nodes':>5}{numbers}  change")
    lines += [f"  {cell.model:{width}} {cell.nodes:>5}{_values(cell, history)}" for cell in cells]
    regressions = history.regressions()
    if not regressions:
        return [*lines, "no cell became worse beyond noise"]
    worse = (f"  {one.text(history.whole.level)}" for one in regressions)
    return [*lines, f"{len(regressions)} worse beyond noise or lost:", *worse]


def _values(cell: CellHistory, history: History) -> str:
    """Its best value in each sweep, a star where it differs from the one before beyond noise; and the whole change."""
    words = [
        history.metric.number(value) + ("*" if step is not None and step.changed else " ")
        for value, step in zip(cell.values, cell.steps, strict=True)
    ]
    change = cell.whole.text(history.whole.level) if cell.whole is not None else ""
    return "".join(f" {word:>10}" for word in words) + f"  {change}".rstrip()


def _check(
    sources: tuple[Path, ...], baseline: Path, within: float, metric: str, noise: float | None, as_json: bool
) -> int:
    several = Mistake("one sweep is checked", path="--baseline", remedy="name one, or omit --baseline")
    refuse(["anyway"], "with --baseline", *([several] if len(sources) > 1 else []))
    (source,) = named(sources)
    certificate = library.certify(source, baseline, within=within, metric=metric, noise=noise)
    if as_json:
        click.echo(json.dumps({"sweep": str(source), "baseline": str(baseline), **certificate.document()}))
    else:
        click.echo("\n".join(_certificate(certificate)))
    return 0 if certificate.passed else 1


def _certificate(certificate: Certificate) -> list[str]:
    from analysis.compare.baseline import FAIL, NEW, PASS, UNDECIDED
    from sweep.library.winners import SIMULATED

    lines = [SIMULATED] if certificate.simulated else []
    lines += [_workload(one, certificate) for one in certificate.workloads]
    counts = Counter(one.verdict for one in certificate.workloads)
    shown = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (PASS, FAIL, UNDECIDED, NEW))
    checked = plural(len(certificate.workloads), "workload")
    result = "passed" if certificate.passed else "not passed"
    lines.append(f"{result} within {100 * certificate.within:.3g} % of the baseline: {checked}, {shown}")
    if any(one.verdict == UNDECIDED and one.change is not None for one in certificate.workloads):
        lines.append("undecided: the interval includes the limit; more `repeats` in the grid narrow it")
    return lines


def _workload(one: Workload, certificate: Certificate) -> str:
    from sweep.library.winners import layout_text

    head = f"{one.verdict:9} {one.model} on {one.nodes}: {layout_text(one.layout)}"
    if one.change is None:
        return f"{head}: {one.reason}"
    values = f"{certificate.metric.number(one.baseline)} -> {certificate.metric.number(one.value)}"
    return f"{head}: {values}{certificate.metric.suffix} {one.change.text()}"
