"""Forecasts: what runs teach of others, and their errors by hand."""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.physics.constants import NOISE
from sweep.search.candidates import joined_candidates
from sweep.search.forecast import expected_best, unlearned
from sweep.search.observations import Known
from sweep.search.saving import RecordedRun
from sweep.search.step_time_model import FREEDOM, SLOWDOWN
from tests.support.configurations import made_candidates, run


def candidates(nodes, sizes=(1, 2, 4, 8)):
    given = [{**run(dp=8, mbs=mbs), "nodes": wide} for wide in nodes for mbs in sizes]
    return made_candidates(given)


def recorded(c, rates, outcomes=None, peaks=None):
    ends = tuple(outcomes or [Outcome.OK] * len(c))
    return RecordedRun(c, ends, np.array(rates), np.full(len(c), np.nan) if peaks is None else np.array(peaks))


def test_a_trainer_or_gpu_of_which_the_results_have_no_run_is_named():
    results = recorded(candidates((1,)), [1.0] * 4)
    assert unlearned(results, results.candidates) is None
    other = made_candidates([run(workload="megatron"), run()])
    assert "of {}: what megatron adds to a step".format(*results.candidates.workloads[:1]) in unlearned(results, other)
    elsewhere = replace(results.candidates, gpu=replace(results.candidates.gpu, name="gb300"))
    assert unlearned(results, elsewhere).endswith(": their speeds are taken for those of gb300")


def test_expected_rates_are_those_of_the_recorded_runs_and_nine_in_ten_are_in_their_intervals():
    """One in 20 of those that nothing disturbs is over 1.645 spreads faster; one in 20 of all is slower."""
    measured, grid = candidates((1, 2)), candidates((4,), (1, 2, 4, 8, 16, 32))
    given = recorded(measured, [500.0, 700.0, 900.0, 1000.0] * 2, peaks=[1e10, 2e10, 4e10, 7.5e10] * 2)
    (found,) = expected_best(given, grid, 3).values()
    joined = replace(joined_candidates(grid, measured), by_size=True)
    known = Known(joined)
    for place in range(8):
        known.end(len(grid) + place, Outcome.OK, given.tokens_per_second_per_gpu[place], given.peak_memory_bytes[place])
    rows = np.arange(len(grid))
    rates, works = np.exp(known.posterior().log_rates(rows)), known.posterior().success(rows)
    assert [one.row for one in found] == np.argsort(-rates * works)[:3].tolist()
    assert found[0].row != np.argmax(rates), "the fastest would run out of memory"
    assert (known.posterior().fit.freedom, Known(grid).posterior().fit.freedom) == (FREEDOM, math.inf)
    for one in found:
        spread = math.hypot(known.posterior().spreads(np.array([one.row]))[0], NOISE.spread)
        assert one.tokens_per_second_per_gpu == pytest.approx(rates[one.row])
        assert math.log(one.high / one.tokens_per_second_per_gpu) == pytest.approx(1.645 * spread)
        slower, share = math.log(one.tokens_per_second_per_gpu / one.low), known.posterior().fit.disturbed
        slow = share * 2 * NormalDist(0, math.hypot(spread, SLOWDOWN)).cdf(-slower)
        assert (1 - share) * NormalDist(0, spread).cdf(-slower) + slow == pytest.approx(0.05, abs=1e-3)
        assert one.works == pytest.approx(works[one.row])


def test_the_best_layouts_of_a_cell_are_its_own():
    grid = candidates((1, 2, 4))
    found = expected_best(recorded(candidates((1,)), [400.0, 600.0, 900.0, 1000.0]), grid, most=3)
    assert {cell: {int(grid.nodes[one.row]) for one in best} for cell, best in found.items()} == {
        0: {1},
        1: {2},
        2: {4},
    }
    assert {len(best) for best in found.values()} == {3}
