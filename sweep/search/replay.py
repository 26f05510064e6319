"""Replay of a strategy on a recorded sweep: it sees a result only after requesting the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.outcomes import Outcome
from sweep.planning.predict import order
from sweep.planning.runs import ASSUMED_RUN_S
from sweep.search.budget import Budget
from sweep.search.candidates import Candidates
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.strategies import Pick, Strategy

NEAR = 0.02
"""distance to the best rate within which it counts as found"""


@dataclass(frozen=True)
class RecordedRun:
    """The recorded result of each candidate."""

    candidates: Candidates
    outcomes: tuple[Outcome, ...]
    tokens_per_second_per_gpu: Floats
    """nan if there is none; that of a failed run is ignored"""
    peak_memory_bytes: Floats
    seconds: Floats | None = None
    """each run's duration; by default a minute"""

    @property
    def worked(self) -> Any:
        """Successful runs with a rate."""
        ok = np.array([outcome is Outcome.OK for outcome in self.outcomes], dtype=bool)
        return ok & np.isfinite(self.tokens_per_second_per_gpu)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    recorded: RecordedRun
    order: Ints
    """the requested runs, in order"""
    infeasible: Any
    """the runs ruled out at the end"""


def promising_order(candidates: Candidates) -> Ints:
    """Candidates ordered as in a plan, by the search's predictions before anything is measured; impossible ones last."""
    predicted = Known(candidates).predicted(np.arange(len(candidates)))
    return order(candidates.cells.tolist(), -predicted, candidates.repeats, candidates.ids, candidates.impossible)


def replay(recorded: RecordedRun, strategy: Strategy, budget: Budget) -> Replayed:
    """Run the strategy, one run after another, until it stops or the budget is spent."""
    known = Known(recorded.candidates)
    asked = [pick.index for pick in steps(known, recorded, strategy, budget)]
    return Replayed(recorded, np.array(asked, dtype=np.int64), known.infeasible)


def steps(known: Known, recorded: RecordedRun, strategy: Strategy, budget: Budget) -> Iterator[Pick]:
    """The strategy's picks. Each is yielded before ``known`` has its result: what is known then led to it."""
    size = len(recorded.candidates)
    seconds = np.full(size, ASSUMED_RUN_S) if recorded.seconds is None else recorded.seconds
    elapsed = 0.0
    while (pick := strategy.pick(known, budget.affordable(known, seconds, elapsed))) is not None:
        yield pick
        elapsed += float(seconds[pick.index])
        known.end(
            pick.index,
            recorded.outcomes[pick.index],
            _given(recorded.tokens_per_second_per_gpu[pick.index]),
            _given(recorded.peak_memory_bytes[pick.index]),
        )


def mean_regrets(done: Replayed) -> list[float]:
    """The mean regret over the cells with a success, as a fraction, after 0, 1, 2, … runs."""
    recorded, c = done.recorded, done.recorded.candidates
    rates = np.where(recorded.worked, recorded.tokens_per_second_per_gpu, 0.0)
    best = np.zeros(len(c.cell_names))
    np.maximum.at(best, c.cells, rates)
    with_success = best > 0
    found, curve = np.zeros(len(best)), [1.0 if with_success.any() else 0.0]
    for index in done.order.tolist():
        cell = c.cells[index]
        found[cell] = max(found[cell], rates[index])
        regrets = 1 - found[with_success] / best[with_success]
        curve.append(float(regrets.mean()) if len(regrets) else 0.0)
    return curve


def report(done: Replayed) -> dict[str, Any]:
    """Figures per cell and overall, as JSON values. Shares and regrets are fractions; null if undefined.

    ``regret``: 1 - best found / best recorded, by tokens/s/GPU; 1 if no success was found.
    ``runs_to_within_2pct``: runs of all cells until the cell was within 2 % of its best; null if never.
    ``successes_rejected``: successful runs that were ruled out; ``cell_bests_rejected``: cells whose best was.
    """
    recorded, c = done.recorded, done.recorded.candidates
    failures = ~recorded.worked
    cells = [_cell(done, number) for number in range(len(c.cell_names))]
    regrets = [cell["regret"] for cell in cells if cell["regret"] is not None]
    reached = [cell["runs_to_within_2pct"] for cell in cells if cell["regret"] is not None]
    whole = all(runs is not None for runs in reached) and reached
    overall = {
        "runs_total": len(c),
        "runs_spent": len(done.order),
        "failures_avoided_share": _share(int(failures.sum() - failures[done.order].sum()), int(failures.sum())),
        "successes_rejected": int((recorded.worked & done.infeasible & ~_spent(done)).sum()),
        "cell_bests_rejected": sum(cell["best_rejected"] for cell in cells),
        "mean_regret": float(np.mean(regrets)) if regrets else None,
        "worst_regret": max(regrets, default=None),
        "runs_to_within_2pct_share": max(reached) / len(c) if whole else None,
    }
    return {"overall": overall, "cells": sorted(cells, key=lambda cell: (cell["model"], cell["nodes"]))}


def _cell(done: Replayed, number: int) -> Mapping[str, Any]:
    recorded, c = done.recorded, done.recorded.candidates
    mine, spent = c.cells == number, done.order[c.cells[done.order] == number]
    worked = mine & recorded.worked
    failed = mine & ~recorded.worked
    rates = recorded.tokens_per_second_per_gpu
    best = float(rates[worked].max()) if worked.any() else None
    mine_found = rates[spent][recorded.worked[spent]]
    found = float(mine_found.max()) if len(mine_found) else None
    rejected = worked & done.infeasible & ~_spent(done)
    model, nodes = c.cell_names[number]
    return {
        "model": model,
        "nodes": nodes,
        "runs_total": int(mine.sum()),
        "runs_spent": len(spent),
        "failures_avoided_share": _share(int(failed.sum() - failed[spent].sum()), int(failed.sum())),
        "successes_rejected": int(rejected.sum()),
        "best_rejected": best is not None and not bool(((rates == best) & worked & ~rejected).any()),
        "best": best,
        "best_found": found,
        "regret": None if best is None else 1 - (found or 0.0) / best,
        "runs_to_within_2pct": _runs_to(done, number, best),
    }


def _runs_to(done: Replayed, cell: int, best: float | None) -> int | None:
    recorded, asked = done.recorded, done.order
    if best is None:
        return None
    near = recorded.worked[asked] & (recorded.tokens_per_second_per_gpu[asked] >= (1 - NEAR) * best)
    hits = np.flatnonzero(near & (recorded.candidates.cells[asked] == cell))
    return int(hits[0]) + 1 if len(hits) else None


def _spent(done: Replayed) -> Any:
    spent = np.zeros(len(done.recorded.candidates), dtype=bool)
    spent[done.order] = True
    return spent


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _given(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
