"""Strategies and budgets, on synthetic clusters with known rates."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.replay import InRandomOrder, replay, report
from sweep.search.budget import Budget
from sweep.search.gaussian import expected_improvement
from sweep.search.guided import Guided
from sweep.search.observations import Known
from sweep.search.saving import steps
from tests.support.configurations import made_known, run
from tests.support.synthetic_cluster import truth


@pytest.mark.parametrize("seed", range(4))
def test_guided_finds_the_best_with_a_fifth_of_the_runs_on_clusters_that_physics_does_not_know(seed):
    recorded = truth(seed)
    budget = Budget(runs=len(recorded.candidates) // 5)
    guided = report(replay(recorded, Guided(), budget))["overall"]
    by_chance = report(replay(recorded, InRandomOrder(), budget))["overall"]
    assert guided["mean_regret"] <= 0.03
    assert guided["mean_regret"] <= by_chance["mean_regret"]


def test_the_first_of_a_cell_is_the_run_of_most_rate_times_chance_to_work():
    """The larger the micro-batch, the faster, and the likelier out of memory."""
    given = [run(dp=8, mbs=mbs, gas=64, zero=3, recompute="full") for mbs in (1, 2, 4, 8, 16, 32)]
    known = made_known(given)
    rows = np.arange(6)
    rates, works = np.exp(known.posterior().log_rates(rows)), known.posterior().success(rows)
    assert np.argmax(rates) != np.argmax(rates * works) != np.argmax(works)
    assert Guided().pick(known, np.ones(6, dtype=bool)).index == np.argmax(rates * works)


def test_the_next_of_a_cell_has_the_greatest_gain_per_second():
    """Runs take one to four minutes."""
    recorded, guided, seen = truth(1), Guided(), 0
    c = replace(recorded.candidates, expected_s=60.0 * 2.0 ** (np.arange(len(recorded.candidates)) % 3))
    known = Known(c)
    for pick in steps(known, replace(recorded, candidates=c), guided, Budget()):
        cell = int(c.cells[pick.index])
        if np.isfinite(known.best[cell]):
            left = np.flatnonzero((c.cells == cell) & ~known.begun & ~known.infeasible)
            posterior, best = known.posterior(), np.full(len(left), known.best[cell])
            gains = expected_improvement(posterior.log_rates(left), posterior.spreads(left), best)
            gains = gains * posterior.success(left)
            assert pick.index == left[np.argmax(gains / c.expected_s[left])]
            seen += 1
    assert seen > 3
