"""What a strategy is expected to skip, before anything is measured: it is replayed on results drawn from the prior.

Every run is given a rate and an end, drawn from what the time and memory models say of them all: rates
jointly, with the noise of a measurement; in a cell the runs that are likeliest to exceed the memory do so first; others
fail by chance. What the posterior does not contain, a real cluster may still do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sweep.outcomes import Outcome
from sweep.search.budget import Budget
from sweep.search.candidates import Candidates
from sweep.search.observations import Known
from sweep.search.posterior import OTHER_FAILURES, Posterior
from sweep.search.replay import RecordedRun, steps
from sweep.search.strategies import Strategy


@dataclass(frozen=True)
class Replay:
    """A strategy on drawn results."""

    runs: int
    node_hours: float
    mean_regret: float
    """1 - best measured rate over best rate, on average over the cells that have a run that works"""


def replays(candidates: Candidates, strategy: Strategy, budget: Budget, draws: int, seed: int = 0) -> Iterator[Replay]:
    """The strategy on so many draws, one after another. The same seed gives the same to every strategy."""
    hours = candidates.nodes * candidates.expected_s / 3600
    for drawn in drawn_results(candidates, draws, seed):
        known = Known(candidates)
        spent = [pick.index for pick in steps(known, drawn, strategy, budget)]
        yield Replay(len(spent), float(hours[spent].sum()), _mean_regret(known, drawn))


def _mean_regret(known: Known, drawn: RecordedRun) -> float:
    best = np.zeros(len(known.best))
    np.maximum.at(best, known.candidates.cells, np.where(drawn.worked, drawn.tokens_per_second_per_gpu, 0.0))
    some = best > 0
    return float(np.mean(1 - np.exp(known.best[some]) / best[some])) if some.any() else 0.0


def drawn_results(candidates: Candidates, draws: int, seed: int = 0) -> Iterator[RecordedRun]:
    """Results of all candidates, drawn from the posterior of them."""
    posterior, rows = Posterior(candidates), np.arange(len(candidates))
    mean, works = posterior.log_rates(rows), posterior.success(rows)
    values, vectors = np.linalg.eigh(posterior.covariance(rows))
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    random = np.random.default_rng(seed)
    for _ in range(draws):
        rates = mean + factor @ random.standard_normal(len(rows))
        rates += posterior.fit.scales.noise * random.standard_normal(len(rows))
        over = works / (1 - OTHER_FAILURES) < random.random(len(candidates.cell_names))[candidates.cells]
        failed = random.random(len(rows)) < OTHER_FAILURES
        outcomes = np.where(over, Outcome.OOM_CUDA, np.where(failed, Outcome.PYTHON_EXCEPTION, Outcome.OK))
        nothing = np.full(len(rows), np.nan)
        yield RecordedRun(
            candidates=candidates,
            outcomes=tuple(map(Outcome, outcomes.tolist())),
            tokens_per_second_per_gpu=np.where(over | failed, nothing, np.exp(rates)),
            peak_memory_bytes=nothing,
            seconds=candidates.expected_s,
        )
