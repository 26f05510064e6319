"""Compare two sweeps: every cell and every run that both have, tested together, and what else differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from analysis.compare.comparison import CellPair, Change, Comparison, Failing, Noise, RunPair
from analysis.compare.noise import ASSUMED_FREEDOM, change_of, gain, noise_of, parts_of, tested, typical_change
from analysis.compare.sides import (
    Cell,
    Row,
    Side,
    cell_of,
    identity,
    in_order,
    key_of,
    pairs_of,
    plain_layout,
    with_columns,
)
from analysis.derive.best import failed, succeeded
from analysis.heatmap.cell_text import known
from analysis.metrics import DEFAULT_METRIC, METRICS, Metric, metric_named
from analysis.statistics import holm
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd


LEVEL = 0.01
"""chance to report anything at all where nothing changed"""


def compare(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    metric: str = DEFAULT_METRIC,
    level: float = LEVEL,
    noise: float | None = None,
    anyway: bool = False,
) -> Comparison:
    """Records of two sweeps (``analysis.load``): A is the old one, B the new.

    ``level``: the chance to report anything where nothing changed. ``noise``: the run-to-run standard deviation of a
    change (0.01 is 1 %) where it is known better than from these sweeps.

    ``anyway``: also where no run is in both, or where they differ in model, sequence or batch.

    Raises SweepError where no cell has a value in both, where they are not comparable, or
    ``level`` or ``noise`` is out of range.
    """
    _check(level, noise)
    chosen = metric_named(metric)
    sides = [Side(with_columns(frame), chosen) for frame in (a, b)]
    names, conditions = identity(sides[0].all_rows, sides[1].all_rows)
    pairs = list(pairs_of(sides[0].rows, sides[1].rows, names))
    common = set(sides[0].best) & set(sides[1].best)
    if not common:
        raise SweepError(_nothing_in_both(sides, chosen))
    if not anyway and (different := _not_comparable(sides[0], sides[1], pairs)):
        raise SweepError(different)
    raw = [gain(x, y, chosen) for x, y in pairs]
    found = noise_of(pairs, raw, chosen)
    if noise is not None:
        found = replace(found, deviation=noise, freedom=ASSUMED_FREEDOM, estimated=False)
    failing = _without_value(sides[0], sides[1], names, failed(sides[1].all_rows))
    other = {run.run_a for run in failing}
    ended = _without_value(sides[0], sides[1], names, ~succeeded(sides[1].all_rows))
    return Comparison(
        metric=chosen,
        level=level,
        noise=found,
        conditions=(*conditions, *_versions(a, b)),
        cells=_cells(sides[0], sides[1], pairs, chosen, found, level),
        runs=_runs(pairs, chosen, found, level),
        failing=failing,
        stopped=tuple(run for run in ended if run.run_a not in other),
    )


def _nothing_in_both(sides: Sequence[Side], metric: Metric) -> Mistake:
    """Why no cell has a value in both: a sweep without any, or other cells."""
    without = [name for name, side in zip("AB", sides, strict=True) if not side.best]
    if not without:
        counts = f"{len(sides[0].best)} cells in A, {len(sides[1].best)} in B"
        fact = f"no cell has {metric.label} in both: {counts}"
        return Mistake(fact, remedy="compare sweeps of the same models and node counts")
    fact = f"no run of {' and of '.join(without)} has {metric.label}"
    ok = [side.all_rows[succeeded(side.all_rows)] for side in sides]
    known = [one.name for one in METRICS.values() if all(_has(one, rows) for rows in ok)]
    remedy = f"both have {', '.join(known)}" if known else "compare sweeps with runs that are ok"
    return Mistake(fact, path="--metric", remedy=remedy)


def _has(metric: Metric, rows: pd.DataFrame) -> bool:
    columns = [metric.column, *([metric.needs] if metric.needs else [])]
    return all(name in rows for name in columns) and bool(rows[columns].notna().all(axis=1).any())


WORK = {"shape_json": "the model's shape", "sequence_length": "the sequence", "global_batch_tokens": "the batch"}
"""column -> what a cell of both sweeps must share, for its change to be of the software or the hardware"""


def _not_comparable(a: Side, b: Side, pairs: Sequence[tuple[Row, Row]]) -> list[Mistake]:
    """Why a change would say nothing: the cells of both do other work, or no run is in both."""
    remedy = "--anyway compares them nevertheless"
    mistakes = []
    for column, text in WORK.items():
        here, there = ({cell: _values(side, cell, column) for cell in set(a.best) & set(b.best)} for side in (a, b))
        other = sorted(cell for cell in here if here[cell] and there[cell] and not here[cell] & there[cell])
        if other:
            model, nodes = other[0]
            values = (
                "" if column == "shape_json" else f": {_shown(here[other[0]])} in A, {_shown(there[other[0]])} in B"
            )
            more = f" and {len(other) - 1} more cells" if len(other) > 1 else ""
            mistakes.append(Mistake(f"{text} of {model} on {nodes}{more} differs{values}", remedy=remedy))
    if not pairs and not mistakes:
        mistakes.append(Mistake("no run is in both: their layouts or settings differ", remedy=remedy))
    return mistakes


def _values(side: Side, cell: Cell, column: str) -> set[str]:
    return {str(row[column]) for row in side.rows if cell_of(row) == cell and known(row.get(column))}


def _shown(values: set[str]) -> str:
    return ", ".join(sorted(values)[:3])


def _check(level: float, noise: float | None) -> None:
    mistakes = []
    if not 0 < level < 1:
        mistakes.append(Mistake(f"{level:g} is no level of significance", path="--level", remedy="between 0 and 1"))
    if noise is not None and not 0 < noise < 1:
        mistakes.append(Mistake(f"{noise:g} is no noise", path="--noise", remedy="a fraction such as 0.5%"))
    if mistakes:
        raise SweepError(mistakes)


def _runs(pairs: Sequence[tuple[Row, Row]], metric: Metric, noise: Noise, level: float) -> tuple[RunPair, ...]:
    tests = [tested(gain(x, y, metric), parts_of(x, y, metric, noise)) for x, y in pairs]
    corrected = holm([test[3] for test in tests])
    found = []
    for (x, y), test, p in zip(pairs, tests, corrected, strict=True):
        change = change_of(test, p)
        found.append(
            RunPair(
                model=str(x["model"]),
                nodes=int(x["nodes"]),
                layout=plain_layout(x),
                run_a=str(x["run_id"]),
                run_b=str(y["run_id"]),
                value_a=float(x["value"]),
                value_b=float(y["value"]),
                change=change,
                verdict=_verdict([change], level),
            )
        )
    return tuple(found)


def _cells(
    a: Side, b: Side, pairs: Sequence[tuple[Row, Row]], metric: Metric, noise: Noise, level: float
) -> tuple[CellPair, ...]:
    """Every cell that either sweep has a value for, in the order of models and nodes."""
    of_cell: dict[Cell, list[tuple[Row, Row]]] = {}
    for pair in pairs:
        of_cell.setdefault(cell_of(pair[0]), []).append(pair)
    cells = in_order(a, b)
    both = [cell for cell in cells if cell in a.best and cell in b.best]
    best = {c: tested(gain(a.best[c], b.best[c], metric), parts_of(a.best[c], b.best[c], metric, noise)) for c in both}
    typical = {c: typical_change(of_cell[c], metric, noise) for c in both if len(of_cell.get(c, ())) >= 2}
    corrected = holm([test[3] for test in (*best.values(), *typical.values())])
    p_best = dict(zip(best, corrected, strict=False))
    p_typical = dict(zip(typical, corrected[len(best) :], strict=True))
    found = []
    for cell in cells:
        changes = (
            change_of(best[cell], p_best[cell]) if cell in best else None,
            change_of(typical[cell], p_typical[cell]) if cell in typical else None,
        )
        found.append(
            CellPair(
                model=cell[0],
                nodes=cell[1],
                value_a=float(a.best[cell]["value"]) if cell in a.best else None,
                value_b=float(b.best[cell]["value"]) if cell in b.best else None,
                best=changes[0],
                pairs=len(of_cell.get(cell, ())),
                typical=changes[1],
                verdict=_cell_verdict(cell, a, b, changes, level),
            )
        )
    return tuple(found)


def _cell_verdict(cell: Cell, a: Side, b: Side, changes: Sequence[Change | None], level: float) -> str:
    if cell not in a.best:
        return "new"
    if cell not in b.best:
        return "lost" if cell in b.tried else "missing"
    return _verdict([change for change in changes if change is not None], level)


def _verdict(changes: Sequence[Change], level: float) -> str:
    """The first significant change decides: that of the best before that of the median."""
    for change in changes:
        if change.significant(level):
            return "better" if change.change > 0 else "worse"
    return "same"


def _without_value(a: Side, b: Side, names: Sequence[str], ended: pd.Series[bool]) -> tuple[Failing, ...]:
    """Configurations with a value in A and none in B, where it ``ended`` otherwise."""
    measured = {key_of(row, names) for row in b.rows}
    rows = b.all_rows[ended].to_dict("records")
    of_key = {key_of({str(k): v for k, v in row.items()}, names): row for row in rows}
    found = []
    for row in a.rows:
        key = key_of(row, names)
        if key in of_key and key not in measured:
            other = of_key[key]
            found.append(
                Failing(
                    model=str(row["model"]),
                    nodes=int(row["nodes"]),
                    run_a=str(row["run_id"]),
                    run_b=str(other["run_id"]),
                    outcome=str(other["outcome"]),
                    message=str(other["message"]) if known(other["message"]) else "",
                )
            )
    return tuple(found)


def _versions(a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Versions of python, torch, cuda, nccl that are not the same in both."""
    here, there = (_stated(frame) for frame in (a, b))
    names = sorted(set(here) & set(there))
    return [(name, *(", ".join(sorted(s[name])) for s in (here, there))) for name in names if here[name] != there[name]]  # type: ignore[misc]


def _stated(records: pd.DataFrame) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    if "versions_json" in records:
        for text in records["versions_json"].dropna().unique():
            for name, version in json.loads(text).items():
                if known(version):
                    found.setdefault(str(name), set()).add(str(version))
    return found
