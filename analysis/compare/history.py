"""One grid measured several times, oldest first: each sweep against the one before, and the last against the first.

The last comparison finds what came in steps too small to be found one by one. Each comparison is ``compare``'s, at
``LEVEL`` divided by how many there are (Bonferroni), so that the chance to report anything where nothing changed stays
below ``LEVEL`` for the whole history.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.compare.comparison import LEVEL, CellPair, Comparison, compare
from analysis.derive.best import is_simulated
from analysis.metrics import DEFAULT_METRIC, Metric
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class CellHistory:
    """One cell of the heatmap in each sweep."""

    model: str
    nodes: int
    steps: tuple[CellPair | None, ...]
    """each sweep against the one before; None for the first, and where neither has the cell"""
    whole: CellPair | None
    """the last against the first; of two sweeps their one step"""

    @property
    def values(self) -> tuple[float | None, ...]:
        """The best configuration's value in each sweep; None where none works."""
        first = self.steps[1].value_a if self.steps[1] is not None else None
        return (first, *(step.value_b if step is not None else None for step in self.steps[1:]))


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A cell that one sweep has significantly worse than an earlier one, or no longer has."""

    earlier: int
    later: int
    """places of the two sweeps, from 0"""
    cell: CellPair

    def text(self, level: float) -> str:
        """1B on 2: 1 -> 3: -5.1% (-6.0 to -4.2) *."""
        how = f"no run of it worked in {self.later + 1}" if self.cell.verdict == "lost" else self.cell.text(level)
        return f"{self.cell.model} on {self.cell.nodes}: {self.earlier + 1} -> {self.later + 1}: {how}"


@dataclass(frozen=True, kw_only=True)
class History:
    """Two sweeps or more, each compared with the one before."""

    names: tuple[str, ...]
    """of the sweeps, oldest first"""
    started_at: tuple[float | None, ...]
    """unix seconds of the first attempt of each"""
    simulated: tuple[str, ...]
    """names of those that have simulated runs"""
    steps: tuple[Comparison, ...]
    """each sweep but the first, against the one before"""
    whole: Comparison
    """the last against the first; of two sweeps their one step"""

    @property
    def metric(self) -> Metric:
        """What is compared."""
        return self.whole.metric

    def dated(self) -> list[str]:
        """The sweeps' names, each after the local date and time of its first attempt, where known."""
        begun = ("" if at is None else time.strftime("%Y-%m-%d %H:%M  ", time.localtime(at)) for at in self.started_at)
        return [f"{at}{name}" for at, name in zip(begun, self.names, strict=True)]

    def changed(self, at: int) -> tuple[tuple[str, str, str], ...]:
        """(what, before, now): what that sweep has throughout, and the one before had otherwise."""
        return self.steps[at - 1].conditions if at else ()

    def cells(self) -> list[CellHistory]:
        """Every cell in every sweep, in the order of models and nodes."""
        *steps, whole = ({(pair.model, pair.nodes): pair for pair in one.cells} for one in (*self.steps, self.whole))
        cells = list(dict.fromkeys(cell for step in steps for cell in step))
        place = {model: at for at, model in enumerate(dict.fromkeys(model for model, _ in cells))}
        return [
            CellHistory(
                model=cell[0],
                nodes=cell[1],
                steps=(None, *(step.get(cell) for step in steps)),
                whole=whole.get(cell),
            )
            for cell in sorted(cells, key=lambda cell: (place[cell[0]], cell[1]))
        ]

    def regressions(self) -> list[Regression]:
        """Cells that are significantly worse or lost, by cell; single steps before the whole."""
        last = len(self.steps)
        regressions = []
        for cell in self.cells():
            pairs = [(at - 1, at, pair) for at, pair in enumerate(cell.steps)]
            if last > 1:
                pairs.append((0, last, cell.whole))
            regressions += [
                Regression(earlier=earlier, later=later, cell=pair)
                for earlier, later, pair in pairs
                if pair is not None and pair.verdict in ("worse", "lost")
            ]
        return regressions

    def document(self) -> dict[str, Any]:
        """JSON values."""
        sweeps = [{"name": name, "started_at": at} for name, at in zip(self.names, self.started_at, strict=True)]
        regressions = [
            {"model": one.cell.model, "nodes": one.cell.nodes, "earlier": one.earlier, "later": one.later}
            for one in self.regressions()
        ]
        steps = [step.document() for step in self.steps]
        whole = self.whole.document() if len(steps) > 1 else None
        return {
            "sweeps": sweeps,
            "simulated": self.simulated,
            "steps": steps,
            "whole": whole,
            "regressions": regressions,
        }


def history(
    tables: Sequence[pd.DataFrame],
    names: Sequence[str],
    *,
    metric: str = DEFAULT_METRIC,
    noise: float | None = None,
    anyway: bool = False,
) -> History:
    """Records of two or more sweeps of one grid and their names; the oldest first, where all state when they began.

    ``noise``, ``anyway``: as for ``compare``. Raises SweepError where two sweeps in sequence cannot be
    compared, naming them, and for fewer than two.
    """
    if len(tables) < 2:
        raise SweepError(Mistake("at least two sweeps are compared", remedy="name the older one too"))
    begun = [_started_at(table) for table in tables]
    order = list(range(len(tables)))
    if len(tables) > 2 and None not in begun:
        order.sort(key=lambda at: begun[at] or 0.0)
    pairs = [(order[at - 1], order[at]) for at in range(1, len(order))]
    if len(order) > 2:
        pairs.append((order[0], order[-1]))
    comparisons, mistakes = [], []
    for a, b in pairs:
        try:
            each = LEVEL / len(pairs)
            comparisons.append(compare(tables[a], tables[b], metric=metric, level=each, noise=noise, anyway=anyway))
        except SweepError as error:
            mistakes += [
                Mistake(f"A {names[a]}, B {names[b]}: {m.fact}", path=m.path, remedy=m.remedy) for m in error.mistakes
            ]
    if mistakes:
        raise SweepError(mistakes)
    return History(
        names=tuple(names[at] for at in order),
        started_at=tuple(begun[at] for at in order),
        simulated=tuple(names[at] for at in order if is_simulated(tables[at])),
        steps=tuple(comparisons[: len(order) - 1]),
        whole=comparisons[-1],
    )


def _started_at(table: pd.DataFrame) -> float | None:
    times = table["started_at"].dropna() if "started_at" in table else ()
    return float(min(times)) if len(times) else None
