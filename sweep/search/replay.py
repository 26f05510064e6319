"""Replay of a strategy on a recorded sweep: it sees a result only after requesting the run."""

from __future__ import annotations

from collections.abc import Iterator
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
        return ok & np.isfinite(self.tokens_per_second_per_gpu) & (self.tokens_per_second_per_gpu > 0)


def promising_order(candidates: Candidates) -> Ints:
    """Candidates ordered as in a plan, by predictions before anything is measured; impossible ones last."""
    predicted = Known(candidates).posterior().log_rates(np.arange(len(candidates)))
    return order(candidates.cells.tolist(), -predicted, candidates.repeats, candidates.ids, candidates.impossible)


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


def _given(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
