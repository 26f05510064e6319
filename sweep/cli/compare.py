"""`sweep compare`: two sweeps of the same grid, cell by cell, with significance; a guard for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import SweepCommand
from sweep.cli.history import history
from sweep.cli.options import comparison_options, json_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import results_of
from sweep.library.winners import SIMULATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from analysis.compare import CellPair, Comparison

SHOWN = 20
"""lines of runs that are printed; --json has all"""


@click.command(cls=SweepCommand)
@comparison_options
@json_option
@click.pass_context
def compare(
    ctx: click.Context,
    a: Path,
    b: Path,
    more: tuple[Path, ...],
    metric: str,
    min_slowdown: float | None,
    level: float,
    noise: float | None,
    anyway: bool,
    as_json: bool,
) -> int:
    """Compare two sweeps, A the old one and B the new one: a new NCCL, another trainer version, a replaced switch.

    Compares each cell by its best configuration and by the runs that both have, and each run alone. Changes within
    noise are not reported: it uses iterations and run-to-run spread, corrected for the number of comparisons.

    More than two are a history: see `sweep history`.

    \b
    Examples:
      sweep compare sweeps/nccl-2.26 sweeps/nccl-2.27
      sweep compare baseline.parquet sweeps/tonight --fail-if-slower 3%
      sweep compare a.parquet b.parquet --metric peak_memory_bytes --json
    """
    from analysis.compare import compare as compare_records

    if more:
        given = {"metric": metric, "min_slowdown": min_slowdown, "level": level, "noise": noise, "anyway": anyway}
        return int(ctx.invoke(history, a=a, b=b, more=more, out=None, as_json=as_json, **given))
    sides = [_records(source) for source in (a, b)]
    found = compare_records(*sides, metric=metric, level=level, noise=noise, anyway=anyway)
    simulated = [name for name, side in zip("AB", sides, strict=True) if side["simulated"].fillna(False).any()]
    slower = found.slower_cells(min_slowdown) if min_slowdown is not None else []
    if as_json:
        report = {
            "a": str(a),
            "b": str(b),
            "simulated": simulated,
            **found.document(),
            "fail_if_slower": min_slowdown,
            "failed": bool(slower),
        }
        click.echo(json.dumps({**report, "slower": [[cell.model, cell.nodes] for cell in slower]}))
    else:
        if simulated:
            click.echo(f"{' and '.join(simulated)}: {SIMULATED}")
        click.echo("\n".join(_lines(found)))
        if min_slowdown is not None:
            click.echo(_summary_text(slower, min_slowdown, found.level))
    return 1 if slower else 0


def _records(source: Path) -> pd.DataFrame:
    """The records of a sweep, its new ones collected first, or of a results file."""
    import analysis
    from analysis.compare import columns_needed

    place, _ = results_of(source)
    return analysis.load(place, columns_needed())


def _lines(found: Comparison) -> list[str]:
    """The comparison as text: the changes, and one line for what did not change."""
    metric = found.metric
    how = "estimated from the runs" if found.noise.estimated else "taken as given: too few runs to estimate it"
    lines = [f"{metric.label}; run-to-run noise of a change {found.noise.deviation:.2%} ({how})"]
    lines += [f"throughout: {name}: {a} -> {b}" for name, a, b in found.conditions]
    lines += _cell_lines(found)
    lines += _run_lines(found)
    for words, runs in (("fail in B", found.failing), ("stopped in B before they were measured", found.stopped)):
        if runs:
            lines.append(f"{words} and worked in A: {plural(len(runs), 'configuration')}:")
            lines += [f"  {run.run_a}: {run.outcome} {run.message}".rstrip() for run in runs[:SHOWN]]
            lines += _more(len(runs))
    return lines


def _cell_lines(found: Comparison) -> list[str]:
    counts = {verdict: sum(cell.verdict == verdict for cell in found.cells) for verdict in _WORDS}
    changed = found.changed_cells()
    head = ", ".join(f"{count} {_WORDS[verdict]}" for verdict, count in counts.items() if count)
    lines = [f"{plural(len(found.cells), 'cell')}: {head}"]
    if changed:
        width = max(5, *(len(cell.model) for cell in changed))
        lines.append(f"  {'model':{width}} {'nodes':>5} {'A':>9} {'B':>9}  best                      typical run")
        lines += [f"  {_cell_line(cell, found, width)}" for cell in changed]
    return lines


_WORDS = {
    "worse": "worse",
    "lost": "lost",
    "better": "better",
    "same": "the same within noise",
    "new": "only in B",
    "missing": "only in A",
}


def _cell_line(cell: CellPair, found: Comparison, width: int) -> str:
    a, b = (_value(value, found) for value in (cell.value_a, cell.value_b))
    typical = f"{cell.typical.text(found.level)} ({plural(cell.pairs, 'run')})" if cell.typical else ""
    best = cell.best.text(found.level) if cell.best else cell.verdict
    return f"{cell.model:{width}} {cell.nodes:>5} {a:>9} {b:>9}  {best:25} {typical}".rstrip()


def _value(value: float | None, found: Comparison) -> str:
    from analysis.metrics import number

    return "–" if value is None else number(value * found.metric.factor)


def _run_lines(found: Comparison) -> list[str]:
    changed = sorted(found.changed_runs(), key=lambda run: run.change.change)
    lines = [f"{plural(len(found.runs), 'run')} in both: {len(changed)} changed"]
    lines += [f"  {run.change.text(found.level):27} {run.run_a}" for run in changed[:SHOWN]]
    return lines + _more(len(changed))


def _more(count: int) -> list[str]:
    return [f"  … and {count - SHOWN} more: --json"] if count > SHOWN else []


def _summary_text(slower: Sequence[CellPair], min_slowdown: float, level: float) -> str:
    if not slower:
        return f"no cell is worse by {min_slowdown:.1%} or more"
    report = [
        f"{cell.model} on {cell.nodes} ({'lost' if cell.verdict == 'lost' else f'-{cell.slowdown(level):.1%}'})"
        for cell in slower
    ]
    return f"worse by {min_slowdown:.1%} or more: {', '.join(report)}"
