"""Compare two sweeps: every cell and every run that both have, tested together, and what else differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from analysis.compare.noise import (
    Cell,
    Change,
    Noise,
    Pair,
    Row,
    Side,
    cell_of,
    changes,
    identity,
    key_of,
    noise_of,
    pairs_of,
)
from analysis.derive.best import failed, in_order, succeeded
from analysis.metrics import DEFAULT_METRIC, METRICS, Metric, metric_named
from analysis.tables import as_rows, known, layout_names, plain_values, versions_of
from sweep.errors import Mistake, SweepError

LEVEL = 0.01
"""chance to report anything at all where nothing changed"""
WORK = {"shape_json": "the model's shape", "sequence_length": "the sequence", "global_batch_tokens": "the batch"}
"""column -> what a cell of both sweeps must share, for its change to be of the software or the hardware"""


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
    """same, better, worse or unclear"""


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
    """same, better, worse, unclear (a host had more work than cores),
    lost (A has a value, B tried and failed), missing (B did not try, or was stopped), new"""

    @property
    def changed(self) -> bool:
        """Whether it is significantly better or worse, or lost."""
        return self.verdict in ("better", "worse", "lost")

    def text(self, level: float) -> str:
        """The change of the best configuration, whose values the cell shows; that of the median run where it alone is
        significant.
        """
        best, typical = self.best, self.typical
        if typical is not None and typical.significant(level) and not (best is not None and best.significant(level)):
            return f"{typical.text(level)}, median of {self.pairs} runs"
        return best.text(level) if best is not None else ""


@dataclass(frozen=True, kw_only=True)
class LostRun:
    """A configuration that A measured and B did not, although it tried."""

    model: str
    nodes: int
    run_a: str
    run_b: str
    outcome: str
    message: str
    stopped: bool
    """a user or the scheduler ended it: no failure"""


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
    lost: tuple[LostRun, ...]

    def changed_cells(self) -> list[CellPair]:
        """Cells that are significantly better or worse, or lost."""
        return [cell for cell in self.cells if cell.changed]

    def document(self) -> dict[str, Any]:
        """JSON values."""
        conditions = [{"name": name, "a": a, "b": b} for name, a, b in self.conditions]
        return {**asdict(self), "metric": self.metric.name, "conditions": conditions}


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

    Raises SweepError where no cell has a value in both, where they are not comparable, or ``noise`` is out of range.
    """
    ranked = metric_named(metric)
    sides = Side(a, ranked), Side(b, ranked)
    names, conditions = identity(sides[0].all_rows, sides[1].all_rows)
    pairs = list(pairs_of(sides[0].rows, sides[1].rows, names))
    if not sides[0].best.keys() & sides[1].best.keys():
        raise SweepError(_nothing_in_both(sides, ranked))
    if not anyway and (different := _not_comparable(sides[0], sides[1], pairs)):
        raise SweepError(different)
    between_runs = noise_of(pairs, ranked, noise)
    return Comparison(
        metric=ranked,
        level=level,
        noise=between_runs,
        conditions=(*conditions, *_versions(a, b)),
        cells=_cells(sides[0], sides[1], pairs, ranked, between_runs, level),
        runs=_runs(pairs, ranked, between_runs, level),
        lost=_lost_runs(sides[0], sides[1], names),
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
    in_both = [one.name for one in METRICS.values() if all(_has(one, rows) for rows in ok)]
    remedy = f"both have {', '.join(in_both)}" if in_both else "compare sweeps with runs that are ok"
    return Mistake(fact, path="--metric", remedy=remedy)


def _has(metric: Metric, rows: pd.DataFrame) -> bool:
    columns = [metric.column, *([metric.needs] if metric.needs else [])]
    return all(name in rows for name in columns) and bool(rows[columns].notna().all(axis=1).any())


def _not_comparable(a: Side, b: Side, pairs: Sequence[Pair]) -> list[Mistake]:
    """Why a change would say nothing: the cells of both do other work, or no run is in both."""
    remedy = "--anyway compares them nevertheless"
    mistakes = []
    for column, text in WORK.items():
        here, there = ({cell: _values(side, cell, column) for cell in set(a.best) & set(b.best)} for side in (a, b))
        other = sorted(cell for cell in here if here[cell] and there[cell] and not here[cell] & there[cell])
        if other:
            (model, nodes), values = other[0], ""
            if column != "shape_json":
                a_has, b_has = (", ".join(sorted(side[other[0]])[:3]) for side in (here, there))
                values = f": {a_has} in A, {b_has} in B"
            more = f" and {len(other) - 1} more cells" if len(other) > 1 else ""
            mistakes.append(Mistake(f"{text} of {model} on {nodes}{more} differs{values}", remedy=remedy))
    if not pairs and not mistakes:
        mistakes.append(Mistake("no run is in both: their layouts or settings differ", remedy=remedy))
    return mistakes


def _values(side: Side, cell: Cell, column: str) -> set[str]:
    return {str(row[column]) for row in side.of_cell[cell] if known(row.get(column))}


def _runs(pairs: Sequence[Pair], metric: Metric, noise: Noise, level: float) -> tuple[RunPair, ...]:
    tests = changes({at: [pair] for at, pair in enumerate(pairs)}, metric, noise)
    return tuple(
        RunPair(
            model=str(a["model"]),
            nodes=int(a["nodes"]),
            layout=plain_values(a, layout_names(a)),
            run_a=str(a["run_id"]),
            run_b=str(b["run_id"]),
            value_a=float(a["value"]),
            value_b=float(b["value"]),
            change=tests[at],
            verdict=_verdict([tests[at]], level),
        )
        for at, (a, b) in enumerate(pairs)
    )


def _cells(a: Side, b: Side, pairs: Sequence[Pair], metric: Metric, noise: Noise, level: float) -> tuple[CellPair, ...]:
    """Every cell that either sweep has a value for, in the order of models and nodes."""
    of_cell: dict[Cell, list[Pair]] = {}
    for pair in pairs:
        of_cell.setdefault(cell_of(pair[0]), []).append(pair)
    in_both = a.best.keys() & b.best.keys()
    best = {(cell, "best"): [(a.best[cell], b.best[cell])] for cell in in_both}
    typical = {(cell, "typical"): several for cell, several in of_cell.items() if len(several) >= 2}
    tests = changes(best | typical, metric, noise)
    cells = []
    sizes = pd.concat([side.all_rows[["model", "parameters_total"]] for side in (a, b)])
    for cell in in_order(sizes, {*a.best, *b.best}):
        own = tests.get((cell, "best")), tests.get((cell, "typical"))
        verdict = _verdict([change for change in own if change is not None], level)
        if cell not in a.best or cell not in b.best:
            verdict = "new" if cell not in a.best else "lost" if cell in b.tried else "missing"
        cells.append(
            CellPair(
                model=cell[0],
                nodes=cell[1],
                value_a=float(a.best[cell]["value"]) if cell in a.best else None,
                value_b=float(b.best[cell]["value"]) if cell in b.best else None,
                best=own[0],
                pairs=len(of_cell.get(cell, ())),
                typical=own[1],
                verdict=verdict,
            )
        )
    return tuple(cells)


def _verdict(tests: Sequence[Change], level: float) -> str:
    """The first significant change decides: that of the best before that of the median."""
    for change in tests:
        if change.significant(level):
            return "better" if change.change > 0 else "worse"
    return "unclear" if any(change.unclear(level) for change in tests) else "same"


def _lost_runs(a: Side, b: Side, names: Sequence[str]) -> tuple[LostRun, ...]:
    """Configurations with a value in A and none in B; of several attempts in B, one that failed."""
    measured = {key_of(row, names) for row in b.rows}
    of_key: dict[tuple[Any, ...], tuple[Row, bool]] = {}
    for stopped, ended in ((True, ~succeeded(b.all_rows)), (False, failed(b.all_rows))):
        of_key |= {key_of(row, names): (row, stopped) for row in as_rows(b.all_rows[ended])}
    return tuple(
        LostRun(
            model=str(row["model"]),
            nodes=int(row["nodes"]),
            run_a=str(row["run_id"]),
            run_b=str(other["run_id"]),
            outcome=str(other["outcome"]),
            message=str(other["message"]) if known(other["message"]) else "",
            stopped=stopped,
        )
        for row in a.rows
        if (key := key_of(row, names)) in of_key and key not in measured
        for other, stopped in [of_key[key]]
    )


def _versions(a: pd.DataFrame, b: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Versions of python, torch, cuda, nccl that are not the same in both."""
    here, there = (versions_of(frame) for frame in (a, b))
    return [
        (name, ", ".join(sorted(here[name])), ", ".join(sorted(there[name])))
        for name in sorted(here.keys() & there.keys())
        if set(here[name]) != set(there[name])
    ]
