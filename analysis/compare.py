"""Two sweeps of the same grid, cell by cell and run by run: what became faster, what slower, and what is only noise.

A change is the logarithm of the ratio of two values, turned so that more is better. Its variance has two parts. The
*iterations* of the two runs say how well each run's own median is known: the standard error of a median, times
sqrt(pi/2) over that of a mean. *From run to run* a configuration differs too (other nodes, other clocks, another
placement), which iterations of one run cannot show; it is estimated from the sweeps themselves: runs of one cell
share what changed the cell, so that how far their changes lie apart is that noise (median absolute deviation, so that
a minority of runs which did change does not hide itself). Where there are too few pairs for that, ``ASSUMED_NOISE`` is
taken. Changes over their standard error are Student's t, degrees of freedom by Welch and Satterthwaite.

Each cell is tested twice: its best value against its best value (each sweep's own best, which treats both alike; the
same configuration in both would not, since the first sweep's winner is chosen for its luck too), and the median change
of the runs that both sweeps have. All tests of cells together, and apart from them all tests of runs, are corrected
for their number by Holm's procedure: on two copies of one sweep the chance to report anything is at most ``level``
each.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis import derive
from analysis.celltext import known
from analysis.compare_statistics import (
    MEDIAN_FACTOR,
    holm,
    log_median_variance,
    robust_spread,
    student_quantile,
    student_two_sided,
)
from analysis.metrics import DEFAULT_METRIC, Metric, metric_named
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from collections.abc import Iterator

LEVEL = 0.01
"""chance to report anything at all where nothing changed"""
ASSUMED_NOISE = 0.01
"""Run-to-run standard deviation of a change where the sweeps have too few pairs to tell: 1 %"""
LEAST_NOISE = 0.002
"""No two runs of a training job agree better than that: a smaller estimate is luck"""
LEAST_FREEDOM = 2.5
"""Degrees of freedom from which on the sweeps' own noise is believed"""
ASSUMED_FREEDOM = 30

SAME = ("model", "nodes", "gpus_per_node", "sequence_length", "global_batch_tokens", *derive.LAYOUT)
MAY_CHANGE = ("workload", "gpu", "dtype", "compile", "shape_json", "params_json", "env_json")
"""Part of a run's identity, unless each sweep has one value throughout: then it is what the comparison is about"""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much a configuration differs from one run to the next, as the standard deviation of a change."""

    deviation: float
    freedom: float
    estimated: bool
    """false: too few pairs, ``ASSUMED_NOISE`` was taken"""
    iterations: float = 0.0
    """The usual standard error of one run's logarithm, by its iterations; no run is taken to be surer than that"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One comparison of two values. Ratios: 0.05 is 5 % better, -0.05 is 5 % worse, whatever the metric."""

    change: float
    low: float
    high: float
    """its 95 % confidence interval, not corrected for other comparisons"""
    p: float
    """chance of such a change by noise alone, corrected for the number of comparisons"""

    def significant(self, level: float) -> bool:
        """Is it more than noise?"""
        return self.p <= level


@dataclass(frozen=True, kw_only=True)
class RunPair:
    """One configuration that both sweeps measured."""

    model: str
    nodes: int
    layout: Mapping[str, Any]
    run_a: str
    run_b: str
    value_a: float
    value_b: float
    change: Change
    verdict: str
    """same, better or worse"""


@dataclass(frozen=True, kw_only=True)
class CellPair:
    """One cell of the heatmap in both sweeps."""

    model: str
    nodes: int
    value_a: float | None
    value_b: float | None
    best: Change | None
    """of the best configuration, which may be another one"""
    pairs: int
    """configurations that both measured"""
    typical: Change | None
    """the median over these; None below two"""
    verdict: str
    """same, better, worse, lost (A has a value, B tried and failed), missing (B did not try), new"""

    def slowdown(self, level: float) -> float:
        """By how much it is significantly worse, as a fraction; 0 where it is not."""
        found = [c for c in (self.best, self.typical) if c is not None and c.significant(level)]
        return max([0.0, *(-c.change for c in found)])


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A configuration that A measured and that fails in B."""

    model: str
    nodes: int
    run_a: str
    run_b: str
    outcome: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What differs between two sweeps."""

    metric: Metric
    level: float
    noise: Noise
    conditions: tuple[tuple[str, str, str], ...]
    """(what, in A, in B): what each sweep has throughout and the other has not"""
    cells: tuple[CellPair, ...]
    runs: tuple[RunPair, ...]
    failing: tuple[Failing, ...]

    def changed_cells(self) -> list[CellPair]:
        """Cells that are significantly better or worse, or that are lost."""
        return [cell for cell in self.cells if cell.verdict in ("better", "worse", "lost")]

    def changed_runs(self) -> list[RunPair]:
        """Runs that are significantly better or worse."""
        return [run for run in self.runs if run.verdict != "same"]

    def slower_cells(self, least: float) -> list[CellPair]:
        """Cells that are lost, or significantly worse by at least that fraction."""
        found = ((cell, cell.slowdown(self.level)) for cell in self.cells)
        return [cell for cell, worse in found if cell.verdict == "lost" or (worse > 0 and worse >= least)]

    def document(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "metric": self.metric.name,
            "level": self.level,
            "noise": asdict(self.noise),
            "conditions": [{"name": name, "a": a, "b": b} for name, a, b in self.conditions],
            "cells": [asdict(cell) for cell in self.cells],
            "runs": [asdict(run) for run in self.runs],
            "failing": [asdict(run) for run in self.failing],
        }


def columns_needed() -> list[str]:
    """The columns that ``compare`` reads."""
    return list(dict.fromkeys([*derive.NEEDED, "message", "versions_json", "parameters_total"]))


def compare(
    a: pd.DataFrame, b: pd.DataFrame, *, metric: str = DEFAULT_METRIC, level: float = LEVEL, noise: float | None = None
) -> Comparison:
    """Records of two sweeps (``analysis.load``): A is the old one, B the new.

    ``level``: the chance to report anything where nothing changed. ``noise``: the run-to-run standard deviation of a
    change (0.01 is 1 %) where it is known better than these sweeps tell.

    Raises SweepError where no cell has a value in both, or ``level`` or ``noise`` is out of range.
    """
    _check(level, noise)
    chosen = metric_named(metric)
    sides = [_Side(_with_columns(frame), chosen) for frame in (a, b)]
    names, conditions = _identity(sides[0].all_rows, sides[1].all_rows)
    pairs = list(_pairs(sides[0].rows, sides[1].rows, names))
    common = set(sides[0].best) & set(sides[1].best)
    if not common:
        fact = f"no cell has {chosen.label} in both: {len(sides[0].best)} cells in A, {len(sides[1].best)} in B"
        raise SweepError(Mistake(fact, remedy="compare sweeps of the same models and node counts"))
    raw = [_gain(x, y, chosen) for x, y in pairs]
    found = _noise(pairs, raw, chosen)
    if noise is not None:
        found = replace(found, deviation=noise, freedom=ASSUMED_FREEDOM, estimated=False)
    return Comparison(
        metric=chosen,
        level=level,
        noise=found,
        conditions=(*conditions, *_versions(a, b)),
        cells=_cells(sides[0], sides[1], pairs, chosen, found, level),
        runs=_runs(pairs, chosen, found, level),
        failing=_failing(sides[0], sides[1], names),
    )


Row = Mapping[str, Any]
Cell = tuple[str, int]


class _Side:
    """One sweep: what was measured, one row per configuration, and the best row of each cell."""

    def __init__(self, records: pd.DataFrame, metric: Metric) -> None:
        self.all_rows = derive.counting(derive.completed(records)).dropna(subset=derive.CELL)
        measured = derive.measured(records, metric)
        measured = measured[measured["value"] > 0].sort_values("value", ascending=not metric.higher_is_better)
        self.rows: list[Row] = [{str(k): v for k, v in row.items()} for row in measured.to_dict("records")]
        self.best: dict[Cell, Row] = {}
        for row in self.rows:
            self.best.setdefault(_cell(row), row)
        self.tried = {_cell(row) for row in self.all_rows[derive.CELL].to_dict("records")}


def _with_columns(records: pd.DataFrame) -> pd.DataFrame:
    missing = [name for name in columns_needed() if name not in records and name not in derive.CELL]
    return records.assign(**dict.fromkeys(missing)) if missing else records


def _check(level: float, noise: float | None) -> None:
    mistakes = []
    if not 0 < level < 1:
        mistakes.append(Mistake(f"{level:g} is no level of significance", path="--level", remedy="between 0 and 1"))
    if noise is not None and not 0 < noise < 1:
        mistakes.append(Mistake(f"{noise:g} is no noise", path="--noise", remedy="a fraction such as 0.5%"))
    if mistakes:
        raise SweepError(mistakes)


def _identity(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Columns that make two runs the same, and what differs between the sweeps as a whole."""
    names, conditions = list(SAME), []
    for name in MAY_CHANGE:
        here, there = (sorted({str(v) for v in frame[name].dropna()}) for frame in (a, b))
        if here != there and len(here) <= 1 and len(there) <= 1:
            conditions.append((name, *("".join(side) or "not stated" for side in (here, there))))
        else:
            names.append(name)
    return names, [(name, x, y) for name, x, y in conditions]


def _key(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """What a run is, comparable between sweeps: 8 and 8.0 are one, whatever is missing is None."""
    return tuple((str(row[n]) if isinstance(row[n], str) else float(row[n])) if known(row[n]) else None for n in names)


def _cell(row: Row) -> Cell:
    return str(row["model"]), int(row["nodes"])


def _pairs(a: Sequence[Row], b: Sequence[Row], names: Sequence[str]) -> Iterator[tuple[Row, Row]]:
    """Rows of the same configuration. Where a side has it twice, its better one."""
    there: dict[tuple[Any, ...], Row] = {}
    for row in b:
        there.setdefault(_key(row, names), row)
    for row in a:
        other = there.pop(_key(row, names), None)
        if other is not None:
            yield row, other


def _gain(x: Row, y: Row, metric: Metric) -> float:
    """Logarithm of the ratio B to A, positive where B is better."""
    ratio = math.log(float(y["value"]) / float(x["value"]))
    return ratio if metric.higher_is_better else -ratio


def _own_variance(row: Row, metric: Metric) -> tuple[float, int]:
    """What the iterations say of a row's value: variance of its logarithm, degrees of freedom."""
    times = row.get("step_times_s")
    if metric.time_like == 0 or times is None or np.ndim(times) != 1:
        return 0.0, 0
    variance, freedom = log_median_variance(times)
    repeats = max(1, int(row["repeats"]))
    return variance / repeats, freedom * repeats


def _usual_error(pairs: Sequence[tuple[Row, Row]], metric: Metric) -> float:
    """The median over runs of the standard error by their iterations: five iterations agree by luck now and then."""
    own = [variance for pair in pairs for variance, freedom in (_own_variance(row, metric) for row in pair) if freedom]
    return math.sqrt(float(np.median(own))) if own else 0.0


def _noise(pairs: Sequence[tuple[Row, Row]], gains: Sequence[float], metric: Metric) -> Noise:
    """The run-to-run part of a change's spread: what is left of it without the iterations' part."""
    usual = _usual_error(pairs, metric)
    by_cell: dict[Cell, list[float]] = {}
    for (x, _), gain in zip(pairs, gains, strict=True):
        by_cell.setdefault(_cell(x), []).append(gain)
    spread, freedom = robust_spread(list(by_cell.values()))
    if freedom < LEAST_FREEDOM:
        # One run per cell: the cells themselves stand for repeats, as long as most of them did not change.
        spread, freedom = robust_spread([list(gains)])
    if freedom < LEAST_FREEDOM:
        return Noise(deviation=ASSUMED_NOISE, freedom=ASSUMED_FREEDOM, estimated=False, iterations=usual)
    own = [_own_variance(x, metric)[0] + _own_variance(y, metric)[0] for x, y in pairs]
    rest = math.sqrt(max(0.0, spread**2 - float(np.median(own))))
    return Noise(deviation=max(LEAST_NOISE, rest), freedom=freedom, estimated=True, iterations=usual)


def _tested(gain: float, parts: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """(gain, standard error, degrees of freedom, p) from the parts (variance, degrees of freedom) of its variance."""
    variance = sum(part for part, _ in parts)
    doubt = sum(part**2 / freedom for part, freedom in parts if freedom > 0)
    freedom = min(1e6, variance**2 / doubt) if doubt > 0 else 1e6
    error = math.sqrt(variance)
    return gain, error, freedom, student_two_sided(gain / error if error > 0 else math.nan, freedom)


def _parts(x: Row, y: Row, metric: Metric, noise: Noise) -> list[tuple[float, float]]:
    """Parts of the variance of one pair's change: the iterations of both, and the noise from run to run."""
    share = (1 / max(1, int(x["repeats"])) + 1 / max(1, int(y["repeats"]))) / 2
    own = [_own_variance(row, metric) for row in (x, y)]
    iterations = [(max(variance, noise.iterations**2), float(freedom)) for variance, freedom in own]
    return [*iterations, (noise.deviation**2 * share, noise.freedom)]


def _typical(pairs: Sequence[tuple[Row, Row]], metric: Metric, noise: Noise) -> tuple[float, float, float, float]:
    """The median change of several pairs, tested."""
    gains = [_gain(x, y, metric) for x, y in pairs]
    n = len(pairs)
    factor = (MEDIAN_FACTOR**2 if n > 2 else 1.0) / n**2
    parts = [(part * factor, freedom) for x, y in pairs for part, freedom in _parts(x, y, metric, noise)[:2]]
    shared = sum(_parts(x, y, metric, noise)[2][0] for x, y in pairs) * factor
    return _tested(float(np.median(gains)), [*parts, (shared, noise.freedom)])


def _change(test: tuple[float, float, float, float], p: float) -> Change:
    gain, error, freedom, _ = test
    reach = student_quantile(0.95, freedom) * error
    return Change(change=math.expm1(gain), low=math.expm1(gain - reach), high=math.expm1(gain + reach), p=p)


def _runs(pairs: Sequence[tuple[Row, Row]], metric: Metric, noise: Noise, level: float) -> tuple[RunPair, ...]:
    tests = [_tested(_gain(x, y, metric), _parts(x, y, metric, noise)) for x, y in pairs]
    corrected = holm([test[3] for test in tests])
    found = []
    for (x, y), test, p in zip(pairs, tests, corrected, strict=True):
        change = _change(test, p)
        found.append(
            RunPair(
                model=str(x["model"]),
                nodes=int(x["nodes"]),
                layout={name: _plain(x[name]) for name in derive.LAYOUT if known(x.get(name))},
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
    a: _Side, b: _Side, pairs: Sequence[tuple[Row, Row]], metric: Metric, noise: Noise, level: float
) -> tuple[CellPair, ...]:
    """Every cell that either sweep has a value for, in the order of models and nodes."""
    of_cell: dict[Cell, list[tuple[Row, Row]]] = {}
    for pair in pairs:
        of_cell.setdefault(_cell(pair[0]), []).append(pair)
    cells = _in_order(a, b)
    both = [cell for cell in cells if cell in a.best and cell in b.best]
    best = {c: _tested(_gain(a.best[c], b.best[c], metric), _parts(a.best[c], b.best[c], metric, noise)) for c in both}
    typical = {c: _typical(of_cell[c], metric, noise) for c in both if len(of_cell.get(c, ())) >= 2}
    corrected = holm([test[3] for test in (*best.values(), *typical.values())])
    p_best = dict(zip(best, corrected, strict=False))
    p_typical = dict(zip(typical, corrected[len(best) :], strict=True))
    found = []
    for cell in cells:
        changes = (
            _change(best[cell], p_best[cell]) if cell in best else None,
            _change(typical[cell], p_typical[cell]) if cell in typical else None,
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


def _in_order(a: _Side, b: _Side) -> list[Cell]:
    cells = set(a.best) | set(b.best)
    rows = pd.concat([a.all_rows[["model", "parameters_total"]], b.all_rows[["model", "parameters_total"]]])
    models = derive.model_order(rows, sorted({model for model, _ in cells}))
    place = {model: at for at, model in enumerate(models)}
    return sorted(cells, key=lambda cell: (place[cell[0]], cell[1]))


def _cell_verdict(cell: Cell, a: _Side, b: _Side, changes: Sequence[Change | None], level: float) -> str:
    if cell not in a.best:
        return "new"
    if cell not in b.best:
        return "lost" if cell in b.tried else "missing"
    return _verdict([change for change in changes if change is not None], level)


def _verdict(changes: Sequence[Change], level: float) -> str:
    """Of what is significant the first decides: the best before the typical."""
    for change in changes:
        if change.significant(level):
            return "better" if change.change > 0 else "worse"
    return "same"


def _failing(a: _Side, b: _Side, names: Sequence[str]) -> tuple[Failing, ...]:
    """Configurations with a value in A that failed in B and have no value there."""
    measured = {_key(row, names) for row in b.rows}
    rows = b.all_rows[~derive.succeeded(b.all_rows)].to_dict("records")
    failed = {_key({str(k): v for k, v in row.items()}, names): row for row in rows}
    found = []
    for row in a.rows:
        key = _key(row, names)
        if key in failed and key not in measured:
            other = failed[key]
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


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
