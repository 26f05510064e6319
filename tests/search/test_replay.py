"""What a replay reports of a search, by counting on a few stated runs."""

import numpy as np
import pytest

from benchmarks.replay import Replayed, replay, report
from sweep.outcomes import Outcome
from sweep.search.budget import Budget
from sweep.search.observations import Known
from sweep.search.saving import RecordedRun, steps
from sweep.search.strategies import Exhaustive, Prune
from tests.support.configurations import made_candidates, run

NAN = float("nan")
RATES = [90.0, NAN, 100.0, 99.0, 50.0, NAN, 60.0]
NODES = [1, 1, 1, 1, 2, 2, 2]


def recorded(rates=RATES, seconds=None):
    given = [{**run(mbs=2**i), "nodes": nodes} for i, nodes in enumerate(NODES)]
    found = made_candidates(given)
    ends = tuple(Outcome.UNKNOWN if np.isnan(rate) else Outcome.OK for rate in rates)
    return RecordedRun(found, ends, np.array(rates), np.full(len(rates), np.nan), seconds)


@pytest.mark.parametrize(("wall_s", "runs"), [(2.9, 2), (3.0, 3), (9.0, 7)])
def test_a_replay_begins_at_0_s(wall_s, runs):
    given = recorded(seconds=np.ones(7))
    assert len(list(steps(Known(given.candidates), given, Exhaustive(), Budget(wall_s=wall_s)))) == runs


def reported(order, infeasible=()):
    mask = np.isin(np.arange(7), infeasible)
    return report(Replayed(recorded(), np.array(order, dtype=np.int64), mask))


def test_a_cells_report_counts_its_own_runs():
    first, second = reported([0, 4, 1, 5, 3])["cells"]
    assert first == {
        "model": "1B", "nodes": 1, "runs_total": 4, "runs_spent": 3, "failures_avoided_share": 0.0,
        "successes_rejected": 0, "best_rejected": False, "best": 100.0, "best_found": 99.0,
        "regret": pytest.approx(0.01), "runs_to_within_2pct": 5,
    }  # fmt: skip
    assert (second["runs_spent"], second["best_found"], second["regret"]) == (2, 50.0, pytest.approx(1 / 6))
    assert second["runs_to_within_2pct"] is None


def test_the_whole_is_the_sum_and_mean_of_the_cells():
    whole = reported([0, 4, 3])["overall"]
    assert whole["mean_regret"] == pytest.approx((0.01 + 1 / 6) / 2)
    assert whole["worst_regret"] == pytest.approx(1 / 6)
    assert whole["failures_avoided_share"] == 1.0
    assert reported([0, 1, 4, 3])["overall"]["failures_avoided_share"] == 0.5
    assert whole["runs_to_within_2pct_share"] is None, "one cell's best was never found"
    assert reported([2, 0, 4, 6])["overall"]["runs_to_within_2pct_share"] == pytest.approx(4 / 7)


def test_each_step_is_known_only_after_it_was_asked_for():
    known = Known(recorded().candidates)
    asked: list[int] = []
    for pick in steps(known, recorded(), Exhaustive(), Budget()):
        assert np.flatnonzero(known.begun).tolist() == sorted(asked)
        asked.append(pick.index)
    assert asked == [0, 4, 1, 5, 2, 6, 3], "cells in turn"
    assert np.allclose(np.exp(known.log_rates), RATES, equal_nan=True)


def test_recorded_durations_are_spent_and_a_run_without_one_takes_a_minute():
    assert replay(recorded(), Exhaustive(), Budget(wall_s=180.0)).order.tolist() == [0, 4, 1]
    slow = recorded(seconds=np.array([100.0, 70.0, 20.0, 10.0, 20.0, 20.0, 20.0]))
    assert replay(slow, Exhaustive(), Budget(wall_s=180.0)).order.tolist() == [0, 4, 2, 5, 3]


@pytest.mark.parametrize(("strategy", "last"), [(Prune(), []), (Exhaustive(), [0, 1])])
def test_runs_that_were_ruled_out_take_no_turn_of_their_cell(strategy, last):
    known = Known(recorded().candidates)
    known.ruled_out[:2] = True
    asked = []
    while (pick := strategy.pick(known, ~known.begun)) is not None:
        known.begin(pick.index)
        asked.append(pick.index)
    assert asked == [2, 4, 3, 5, 6, *last]
