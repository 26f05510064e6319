"""One grid measured several times, oldest first: each sweep against the one before, and the last against the first.

The last comparison finds what came in steps too small to be found one by one. Each comparison is ``compare``'s, at
``level`` divided by how many there are (Bonferroni), so that the chance to report anything where nothing changed stays
below ``level`` for the whole history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from analysis.compare.comparison import CellPair, Comparison
from analysis.compare.verdicts import LEVEL, compare
from analysis.metrics import DEFAULT_METRIC, Metric, metric_named
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd

Cell = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One sweep of the history."""

    name: str
    started_at: float | None
    """unix seconds of its first attempt"""
    changed: tuple[tuple[str, str, str], ...]
    """(what, before, now): what it has throughout, and the sweep before had otherwise"""


@dataclass(frozen=True, kw_only=True)
class CellHistory:
    """One cell of the heatmap in each sweep."""

    model: str
    nodes: int
    values: tuple[float | None, ...]
    """of the best configuration in each sweep; None where none works"""
    steps: tuple[CellPair | None, ...]
    """each sweep against the one before; None for the first, and where neither has the cell"""
    whole: CellPair | None
    """the last against the first; None for two sweeps, which have one step"""

    def change(self, level: float) -> str:
        """The last sweep against the first, or of two against the other."""
        pair = self.whole if self.whole is not None else self.steps[-1]
        return "" if pair is None else pair.text(level)


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A cell that one sweep has clearly worse than an earlier one, or no longer has."""

    model: str
    nodes: int
    earlier: int
    later: int
    """places of the two sweeps, from 0"""
    cell: CellPair

    def text(self, level: float) -> str:
        """1B on 2: 1 -> 3: -5.1% (-6.0 to -4.2) *."""
        how = f"no run of it worked in {self.later + 1}" if self.cell.verdict == "lost" else self.cell.text(level)
        return f"{self.model} on {self.nodes}: {self.earlier + 1} -> {self.later + 1}: {how}"


@dataclass(frozen=True, kw_only=True)
class History:
    """Every cell in every sweep."""

    metric: Metric
    level: float
    """of each comparison"""
    sweeps: tuple[Measured, ...]
    cells: tuple[CellHistory, ...]

    def regressions(self, min_share: float = 0.0) -> list[Regression]:
        """Cells that are lost, or significantly worse by at least that fraction; steps before whole histories."""
        found = []
        for cell in self.cells:
            pairs = [(at - 1, at, pair) for at, pair in enumerate(cell.steps) if pair is not None]
            if cell.whole is not None:
                pairs.append((0, len(self.sweeps) - 1, cell.whole))
            for earlier, later, pair in pairs:
                slowdown = pair.slowdown(self.level)
                if pair.verdict == "lost" or (slowdown > 0 and slowdown >= min_share):
                    found.append(
                        Regression(model=cell.model, nodes=cell.nodes, earlier=earlier, later=later, cell=pair)
                    )
        return found

    def slower_now(self, min_share: float) -> list[Regression]:
        """Of these the ones of the last sweep: what was mended since is history."""
        return [one for one in self.regressions(min_share) if one.later == len(self.sweeps) - 1]

    def document(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "metric": self.metric.name,
            "level": self.level,
            "sweeps": [asdict(one) for one in self.sweeps],
            "cells": [asdict(cell) for cell in self.cells],
            "regressions": [asdict(one) for one in self.regressions()],
        }


def history(
    tables: Sequence[pd.DataFrame],
    names: Sequence[str],
    *,
    metric: str = DEFAULT_METRIC,
    level: float = LEVEL,
    noise: float | None = None,
    anyway: bool = False,
) -> History:
    """Records of two or more sweeps of one grid and their names; the oldest first, where all state when they began.

    ``level``, ``noise``, ``anyway``: as for ``compare``. Raises SweepError where two sweeps in sequence cannot be
    compared, naming them, and for fewer than two.
    """
    if len(tables) < 2:
        raise SweepError(Mistake("a history needs at least two sweeps", remedy="name the older ones too"))
    begun = [_started_at(table) for table in tables]
    order = list(range(len(tables)))
    times = [time for time in begun if time is not None]
    if len(times) == len(tables):
        order.sort(key=times.__getitem__)
    pairs = [(order[at - 1], order[at]) for at in range(1, len(order))]
    if len(order) > 2:
        pairs.append((order[0], order[-1]))
    each = level / len(pairs)
    found, mistakes = [], []
    for a, b in pairs:
        try:
            found.append(compare(tables[a], tables[b], metric=metric, level=each, noise=noise, anyway=anyway))
        except SweepError as error:
            mistakes += [
                Mistake(f"A {names[a]}, B {names[b]}: {m.fact}", path=m.path, remedy=m.remedy) for m in error.mistakes
            ]
    if mistakes:
        raise SweepError(mistakes)
    steps = found[: len(order) - 1]
    return History(
        metric=metric_named(metric),
        level=each,
        sweeps=tuple(
            Measured(name=names[at], started_at=begun[at], changed=steps[i - 1].conditions if i else ())
            for i, at in enumerate(order)
        ),
        cells=_cells(steps, found[-1] if len(order) > 2 else None),
    )


def _started_at(table: pd.DataFrame) -> float | None:
    times = table["started_at"].dropna() if "started_at" in table else ()
    return float(min(times)) if len(times) else None


def _cells(steps: Sequence[Comparison], whole: Comparison | None) -> tuple[CellHistory, ...]:
    each = [_by_cell(step) for step in steps]
    ends = _by_cell(whole) if whole is not None else {}
    cells = list(dict.fromkeys(cell for pairs in each for cell in pairs))
    place = {model: at for at, model in enumerate(dict.fromkeys(model for model, _ in cells))}
    return tuple(
        CellHistory(
            model=cell[0],
            nodes=cell[1],
            values=_values([pairs.get(cell) for pairs in each]),
            steps=(None, *(pairs.get(cell) for pairs in each)),
            whole=ends.get(cell),
        )
        for cell in sorted(cells, key=lambda cell: (place[cell[0]], cell[1]))
    )


def _values(pairs: Sequence[CellPair | None]) -> tuple[float | None, ...]:
    first = pairs[0].value_a if pairs[0] is not None else None
    return (first, *(pair.value_b if pair is not None else None for pair in pairs))


def _by_cell(comparison: Comparison) -> Mapping[Cell, CellPair]:
    return {(pair.model, pair.nodes): pair for pair in comparison.cells}
