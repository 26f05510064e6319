"""The two sides of a comparison (one row per configuration, the best row of each cell, which rows are a pair), how much
two values differ, and whether it is more than noise. Method: see the package.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from analysis.derive import best
from analysis.metrics import Metric
from analysis.tables import as_rows, known
from sweep.contract import LAYOUT_FIELDS
from sweep.errors import Mistake, SweepError
from sweep.physics.statistics import (
    MEDIAN_FACTOR,
    holm,
    log_median_variance,
    robust_spread,
    student_quantile,
    student_two_sided,
)

if TYPE_CHECKING:
    import pandas as pd


SAME = ("model", "nodes", "gpus_per_node", "sequence_length", "global_batch_tokens", *LAYOUT_FIELDS)
MAY_CHANGE = ("workload", "gpu", "dtype", "compile", "shape_json", "params_json", "env_json")
"""Part of a run's identity, unless each sweep has one value throughout: then it is what the comparison is about"""

Row = Mapping[str, Any]
Pair = tuple[Row, Row]
"""(of A, of B)"""
Cell = tuple[str, int]


def columns_needed() -> list[str]:
    """The columns that comparisons read."""
    return list(dict.fromkeys([*best.NEEDED, "message", "versions_json", "parameters_total", "started_at"]))


class Side:
    """One sweep: what was measured, one row per configuration, and the best row of each cell."""

    def __init__(self, records: pd.DataFrame, metric: Metric) -> None:
        records = best.completed(records, *columns_needed())
        self.all_rows = best.counting(records).dropna(subset=best.CELL)
        measured = best.measured(records, metric)
        measured = measured[(measured["value"] > 0) & measured["stopped"].isna()].sort_values(
            "value", ascending=metric.better == -1
        )
        self.rows = as_rows(measured)
        self.of_cell: dict[Cell, list[Row]] = {}
        for row in self.rows:
            self.of_cell.setdefault(cell_of(row), []).append(row)
        self.best = {cell: rows[0] for cell, rows in self.of_cell.items()}
        tried = self.all_rows[best.succeeded(self.all_rows) | best.failed(self.all_rows)]
        self.tried = {cell_of(row) for row in tried[best.CELL].to_dict("records")}


def identity(a: pd.DataFrame, b: pd.DataFrame) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Columns that make two runs the same, and what differs between the sweeps as a whole."""
    names, conditions = list(SAME), []
    for name in MAY_CHANGE:
        here, there = (sorted({str(v) for v in frame[name].dropna()}) for frame in (a, b))
        if here != there and len(here) <= 1 and len(there) <= 1:
            conditions.append((name, "".join(here) or "not stated", "".join(there) or "not stated"))
        else:
            names.append(name)
    return names, conditions


def key_of(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    """What a run is, comparable between sweeps: 8 and 8.0 are equal, missing values are None."""
    values = (row.get(name) for name in names)  # an older table has no column of a further field
    return tuple((str(one) if isinstance(one, str) else float(one)) if known(one) else None for one in values)


def cell_of(row: Row) -> Cell:
    """(model, nodes)."""
    return str(row["model"]), int(row["nodes"])


def pairs_of(a: Sequence[Row], b: Sequence[Row], names: Sequence[str]) -> Iterator[Pair]:
    """Rows of the same configuration. Where a side has it twice, the better row."""
    there: dict[tuple[Any, ...], Row] = {}
    for row in b:
        there.setdefault(key_of(row, names), row)
    for row in a:
        other = there.pop(key_of(row, names), None)
        if other is not None:
            yield row, other


ASSUMED_NOISE = 0.01
"""Run-to-run standard deviation of a change where the sweeps have too few pairs to estimate it: 1 %"""
MIN_NOISE = 0.002
"""No two runs of a training job agree better than that: a smaller estimate is chance"""
MIN_FREEDOM = 2.5
"""Degrees of freedom from which on the noise estimated from the sweeps is used"""
ASSUMED_FREEDOM = 30

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much a configuration differs from one run to the next, as the standard deviation of a change."""

    deviation: float
    freedom: float
    estimated: bool
    """false: too few pairs, ``ASSUMED_NOISE`` was taken"""
    iterations: float = 0.0
    """The usual standard error of one run's logarithm, by its iterations; no run is assumed more precise than that"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One comparison of two values. Ratios: 0.05 is 5 % better, -0.05 is 5 % worse, whatever the metric."""

    change: float
    low: float
    high: float
    """its 95 % confidence interval, not corrected for other comparisons"""
    p: float
    """chance of such a change by noise alone, corrected for the number of comparisons"""
    oversubscribed_runs: int = 0
    """of those compared, on a host with more work than cores: such load comes in spells, so no change is sure"""

    def significant(self, level: float) -> bool:
        """Whether it is more than noise."""
        return self.p <= level and not self.oversubscribed_runs

    def unclear(self, level: float) -> bool:
        """Whether it would be, had the hosts been undisturbed."""
        return self.p <= level and bool(self.oversubscribed_runs)

    def text(self, level: float | None = None) -> str:
        """-5.1% (-6.0 to -4.2) *, the star where it is significant at the level."""
        star = "" if level is None else " *" if self.significant(level) else " not clear" * self.unclear(level)
        return f"{self.change:+.1%} ({self.low * 100:+.1f} to {self.high * 100:+.1f}){star}"


def gain(pair: Pair, metric: Metric) -> float:
    """Logarithm of the ratio B to A, positive where B is better."""
    a, b = pair
    return metric.better * math.log(float(b["value"]) / float(a["value"]))


def noise_of(pairs: Sequence[Pair], metric: Metric, given: float | None = None) -> Noise:
    """The run-to-run part of a change's spread: what is left of it without the iterations' part.

    ``given``: that part as a fraction, where it is known. Raises SweepError where it is out of range.
    """
    if given is not None and not 0 < given < 1:
        raise SweepError(Mistake(f"{given:g} is no noise", path="--noise", remedy="a fraction such as 0.5%"))
    own = [[_own_variance(row, metric) for row in pair] for pair in pairs]
    # The median over runs: five iterations agree by chance now and then.
    known = [variance for pair in own for variance, freedom in pair if freedom]
    usual = math.sqrt(float(np.median(known))) if known else 0.0
    if given is not None:
        return Noise(deviation=given, freedom=ASSUMED_FREEDOM, estimated=False, iterations=usual)
    by_cell: dict[Cell, list[Pair]] = {}
    for a, b in pairs:
        by_cell.setdefault(cell_of(a), []).append((a, b))
    spread, freedom = robust_spread([_of_single_runs(several, metric) for several in by_cell.values()])
    if freedom < MIN_FREEDOM:
        # One run per cell: the cells themselves serve as repeats, as long as most of them did not change.
        spread, freedom = robust_spread([_of_single_runs(pairs, metric)])
    if freedom < MIN_FREEDOM:
        return Noise(deviation=ASSUMED_NOISE, freedom=ASSUMED_FREEDOM, estimated=False, iterations=usual)
    parts = [sum(variance for variance, _ in both) / _repeated(pair) for both, pair in zip(own, pairs, strict=True)]
    iterations = float(np.median(parts))
    rest = max(MIN_NOISE, math.sqrt(max(0.0, spread**2 - iterations)))
    return Noise(deviation=rest, freedom=freedom, estimated=True, iterations=usual)


def _repeated(pair: Pair) -> float:
    """The variance of a change between medians of several runs, over that of a change from one run to one."""
    repeats = [int(row["repeats"]) for row in pair]
    return sum((MEDIAN_FACTOR**2 if n > 2 else 1.0) / n for n in repeats) / 2


def _of_single_runs(pairs: Sequence[Pair], metric: Metric) -> list[float]:
    """The distances of the gains to their median, as large as those between single runs would be."""
    gains = [gain(pair, metric) for pair in pairs]
    middle = float(np.median(gains)) if gains else 0.0
    return [(one - middle) / math.sqrt(_repeated(pair)) for one, pair in zip(gains, pairs, strict=True)]


def changes(groups: Mapping[Key, Sequence[Pair]], metric: Metric, noise: Noise) -> dict[Key, Change]:
    """The median change of each group of pairs; the chances of them by noise alone are corrected for their number."""
    tests = {key: tested(pairs, metric, noise) for key, pairs in groups.items()}
    corrected = holm([p for *_, p in tests.values()])
    disturbed = {
        key: sum(int(row.get("oversubscribed_runs") or 0) for pair in pairs for row in pair)
        for key, pairs in groups.items()
    }
    found = {}
    for (key, (gained, error, freedom, _)), p in zip(tests.items(), corrected, strict=True):
        reach = student_quantile(0.95, freedom) * error
        low, change, high = (math.expm1(gained + end) for end in (-reach, 0.0, reach))
        found[key] = Change(change=change, low=low, high=high, p=p, oversubscribed_runs=disturbed[key])
    return found


def tested(pairs: Sequence[Pair], metric: Metric, noise: Noise) -> tuple[float, float, float, float]:
    """(median gain, its standard error, degrees of freedom, p) of several pairs, or of one."""
    n = len(pairs)
    factor = (MEDIAN_FACTOR**2 if n > 2 else 1.0) / n**2
    parts, shared = [], 0.0
    for a, b in pairs:
        for row in (a, b):
            variance, freedom = _own_variance(row, metric)
            parts.append((max(variance, noise.iterations**2) * factor, float(freedom)))
        shared += noise.deviation**2 * _repeated((a, b)) * factor
    gained = float(np.median([gain(pair, metric) for pair in pairs]))
    return welch(gained, [*parts, (shared, noise.freedom)])


def welch(gained: float, parts: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """(gain, standard error, degrees of freedom, p) from the parts (variance, degrees of freedom) of its variance."""
    variance = sum(part for part, _ in parts)
    uncertainty = sum(part**2 / freedom for part, freedom in parts if freedom > 0)
    freedom = min(1e6, variance**2 / uncertainty) if uncertainty > 0 else 1e6
    error = math.sqrt(variance)
    return gained, error, freedom, student_two_sided(gained / error if error > 0 else math.nan, freedom)


def _own_variance(row: Row, metric: Metric) -> tuple[float, int]:
    """Variance of the logarithm of a row's value by its iterations, and its degrees of freedom."""
    times: Any = row.get("step_times_s")
    if metric.time_like == 0 or np.ndim(times) != 1:  # that of a missing value is 0
        return 0.0, 0
    variance, freedom = log_median_variance(times)
    return variance / int(row["repeats"]), freedom
