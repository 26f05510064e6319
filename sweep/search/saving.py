"""What a strategy is expected to skip, before anything is measured: it is replayed on results drawn from the prior.

Every run is given a rate and an end, drawn from what the time and memory models say of them all: rates
jointly, with the noise of a measurement; in a cell the runs that are likeliest to exceed the memory do so first; others
fail by chance. A run takes its start and the iterations of its drawn rate: those until it has lost, where such runs are
stopped. What the posterior does not contain, a real cluster may still do.
In a replay a strategy sees a result only after requesting the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.outcomes import Outcome
from sweep.physics.statistics import LEAST_FACTOR
from sweep.planning.predict import order
from sweep.planning.runs import ASSUMED_RUN_S, ASSUMED_START_S
from sweep.search.budget import Budget
from sweep.search.candidates import Candidates
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.posterior import OTHER_FAILURES, Posterior
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
        rate, peak = recorded.tokens_per_second_per_gpu[pick.index], recorded.peak_memory_bytes[pick.index]
        known.end(pick.index, recorded.outcomes[pick.index], rate, peak)


@dataclass(frozen=True)
class Replay:
    """A strategy on drawn results."""

    runs: int
    node_hours: float
    mean_regret: float
    """1 - best measured rate over best rate, on average over the cells that have a run that works"""


def replays(
    candidates: Candidates,
    strategy: Strategy,
    budget: Budget,
    draws: int,
    seed: int = 0,
    iterations: int | None = None,
    most_s: float = np.inf,
) -> Iterator[Replay]:
    """The strategy on so many draws, one after another. The same seed gives the same to every strategy.

    ``iterations``: of a run in full, warm-up included, where runs that have lost are stopped; None: no run is.
    ``most_s``: after which a run is ended.
    """
    for drawn in drawn_results(candidates, draws, seed):
        known, hours, spent = Known(candidates), 0.0, 0
        for pick in steps(known, drawn, strategy, budget):
            seconds = min(_seconds(known, drawn, pick.index, iterations), most_s)
            hours += float(candidates.nodes[pick.index]) * seconds / 3600
            spent += 1
        best = np.zeros(len(known.best))
        np.maximum.at(best, known.candidates.cells, np.where(drawn.worked, drawn.tokens_per_second_per_gpu, 0.0))
        some = best > 0
        yield Replay(spent, hours, float(np.mean(1 - np.exp(known.best[some]) / best[some])) if some.any() else 0.0)


def _seconds(known: Known, drawn: RecordedRun, index: int, iterations: int | None) -> float:
    """Of a run: in full, or until it has lost by what is known then (``SlowBound.lost``)."""
    assert drawn.seconds is not None
    whole = float(drawn.seconds[index])
    if iterations is None or not drawn.worked[index]:
        return whole
    behind = known.best[drawn.candidates.cells[index]] - np.log(drawn.tokens_per_second_per_gpu[index])
    if behind < np.log(LEAST_FACTOR):
        return whole
    start, until = min(whole, ASSUMED_START_S), 2 if behind > np.log(2) else 3  # the first iteration is not compared
    return start + (whole - start) * min(1.0, until / iterations)


def drawn_results(candidates: Candidates, draws: int, seed: int = 0) -> Iterator[RecordedRun]:
    """Results of all candidates, drawn from the posterior of them."""
    posterior, rows = Posterior(candidates), np.arange(len(candidates))
    mean, works = posterior.log_rates(rows), posterior.success(rows)
    noise = posterior.fit.scales.noise**2 * np.eye(len(rows))
    factor = np.linalg.cholesky(posterior.covariance(rows) + noise)
    start = np.minimum(candidates.expected_s, ASSUMED_START_S)
    random = np.random.default_rng(seed)
    for _ in range(draws):
        rates = mean + factor @ random.standard_normal(len(rows))
        over = works / (1 - OTHER_FAILURES) < random.random(len(candidates.cell_names))[candidates.cells]
        failed = random.random(len(rows)) < OTHER_FAILURES
        outcomes = np.where(over, Outcome.OOM_CUDA, np.where(failed, Outcome.PYTHON_EXCEPTION, Outcome.OK))
        nothing = np.full(len(rows), np.nan)
        yield RecordedRun(
            candidates=candidates,
            outcomes=tuple(map(Outcome, outcomes.tolist())),
            tokens_per_second_per_gpu=np.where(over | failed, nothing, np.exp(rates)),
            peak_memory_bytes=nothing,
            seconds=np.where(over | failed, start, start + (candidates.expected_s - start) * np.exp(mean - rates)),
        )
