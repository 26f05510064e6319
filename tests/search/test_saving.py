"""The expected saving of a search: replays on results drawn from what is believed before anything is measured."""

from itertools import product

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.search.budget import Budget
from sweep.search.candidates import from_plan
from sweep.search.observations import Known
from sweep.search.posterior import OTHER_FAILURES
from sweep.search.saving import RecordedRun, drawn_results, replays, steps
from sweep.search.strategies import Exhaustive, Prune, strategy_named
from tests.support.configurations import made_candidates, run
from tests.support.made_events import planned


@pytest.fixture(scope="module")
def candidates():
    """Two cells, of 1 and 2 nodes; the largest micro-batches are near the memory."""
    made = []
    for mbs, zero, tp, nodes in product((1, 4, 16, 64), (0, 1), (1, 2), (1, 2)):
        layout = {"mbs": mbs, "zero": zero, "tp": tp, "dp": 8 * nodes // tp}
        made.append(planned(len(made), 60.0 * nodes, nodes=nodes, **layout))
    return from_plan(made, GPUS["h100"])


def test_results_are_drawn_jointly_from_the_posterior(candidates):
    """Runs that the model believes to err together do so: mean, spread and correlation of the logarithms of rates."""
    posterior, rows = Known(candidates).posterior(), np.arange(len(candidates))
    drawn = np.log([drawn.tokens_per_second_per_gpu for drawn in drawn_results(candidates, 400)])
    pair = [0, 1]
    sure = np.flatnonzero(posterior.success(rows) > 0.85)[pair]
    both = drawn[~np.isnan(drawn[:, sure]).any(axis=1)][:, sure]
    assert len(both) > 250
    expected = posterior.covariance(sure) + posterior.fit.scales.noise**2 * np.eye(2)
    assert both.mean(axis=0) == pytest.approx(posterior.log_rates(sure), abs=4 * np.sqrt(expected.max() / len(both)))
    assert np.cov(both.T) == pytest.approx(expected, rel=0.35)


def test_rates_of_runs_that_differ_by_nothing_are_drawn_too():
    """Their covariance is singular: computed eigenvalues are a little below 0."""
    given = [run(dp=8, mbs=1, repeat=at) for at in range(24)]
    equal = made_candidates(given)
    values = np.linalg.eigvalsh(Known(equal).posterior().covariance(np.arange(24)))
    assert values.min() < 0
    for drawn in drawn_results(equal, 3):
        worked = np.array(drawn.outcomes) == Outcome.OK
        rates = np.log(drawn.tokens_per_second_per_gpu[worked])
        assert np.std(rates) == pytest.approx(Known(equal).posterior().fit.scales.noise, rel=0.5)
        assert worked.any()


def test_failures_are_as_likely_as_believed_and_what_needs_more_memory_fails_first(candidates):
    works, draws = Known(candidates).posterior().success(np.arange(len(candidates))), 400
    outcomes = np.array([drawn.outcomes for drawn in drawn_results(candidates, draws)])
    ok = (outcomes == Outcome.OK).mean(axis=0)
    assert ok == pytest.approx(works, abs=4 * np.sqrt(0.25 / draws))
    assert works.min() < 0.1, "some exceed the memory"
    for one in outcomes[:50]:
        for cell in np.unique(candidates.cells):
            mine = candidates.cells == cell
            over = mine & (one == Outcome.OOM_CUDA)
            assert not over.any() or works[over].max() <= works[mine & ~over].min() + 1e-12
    others = (outcomes == Outcome.PYTHON_EXCEPTION).sum() / (outcomes != Outcome.OOM_CUDA).sum()
    assert others == pytest.approx(OTHER_FAILURES, abs=0.02)


def test_exhaustive_saves_nothing_and_a_budget_is_held(candidates):
    hours = [float((candidates.nodes * drawn.seconds).sum()) / 3600 for drawn in drawn_results(candidates, 2)]
    whole = list(replays(candidates, strategy_named("exhaustive"), Budget(), 2))
    assert len(whole) == 2
    for one, spent in zip(whole, hours, strict=True):
        assert (one.runs, one.mean_regret) == (len(candidates), 0.0)
        assert one.node_hours == pytest.approx(spent)
    for one in replays(candidates, strategy_named("guided"), Budget(runs=8), 2):
        assert one.runs <= 8
        assert 0 < one.node_hours < max(hours)
        assert 0 <= one.mean_regret < 1


def test_a_run_that_loses_costs_its_start_and_the_iterations_until_then(candidates):
    strategy = strategy_named("exhaustive")
    wholes = replays(candidates, strategy, Budget(), 3)
    stopped = replays(candidates, strategy, Budget(), 3, iterations=7)
    for whole, stopping, drawn in zip(wholes, stopped, drawn_results(candidates, 3), strict=True):
        best, hours = {}, 0.0
        for pick in steps(Known(candidates), drawn, strategy, Budget()):
            at, cell = pick.index, int(candidates.cells[pick.index])
            rate, seconds = drawn.tokens_per_second_per_gpu[at], drawn.seconds[at]
            slower = best.get(cell, 0.0) / rate
            if slower > 1.1:
                start = min(seconds, 30.0)
                seconds = start + (seconds - start) * (2 if slower > 2 else 3) / 7
            best[cell] = np.fmax(best.get(cell, 0.0), rate)
            hours += candidates.nodes[at] * seconds / 3600
        assert stopping.node_hours == pytest.approx(hours)
        assert stopping.node_hours < whole.node_hours


@pytest.mark.parametrize("runs", [1, 5, 17])
def test_the_regret_is_the_mean_over_cells_of_what_the_best_measured_rate_is_below_the_best(candidates, runs):
    replayed = replays(candidates, strategy_named("prune"), Budget(runs=runs), 3)
    for drawn, found in zip(drawn_results(candidates, 3), replayed, strict=True):
        rates = np.where(drawn.worked, drawn.tokens_per_second_per_gpu, 0.0)
        cells, known = candidates.cells, Known(candidates)
        mine = [pick.index for pick in steps(known, drawn, strategy_named("prune"), Budget(runs=runs))]
        best = [rates[cells == cell].max() for cell in (0, 1)]
        measured = [rates[[i for i in mine if cells[i] == cell]].max(initial=0.0) for cell in (0, 1)]
        assert found.mean_regret == pytest.approx(1 - np.mean(np.array(measured) / best))


def test_every_strategy_sees_the_same_drawn_results(candidates):
    first, second = (list(drawn_results(candidates, 2, seed=3)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.outcomes == other.outcomes
        np.testing.assert_array_equal(one.tokens_per_second_per_gpu, other.tokens_per_second_per_gpu)
    assert first[0].outcomes != first[1].outcomes


NAN = float("nan")
RATES = [90.0, NAN, 100.0, 99.0, 50.0, NAN, 60.0]


def recorded(seconds=None):
    """Four runs on one node and three on two."""
    found = made_candidates([{**run(mbs=2**i), "nodes": 1 + (i > 3)} for i in range(7)])
    ends = tuple(Outcome.UNKNOWN if np.isnan(rate) else Outcome.OK for rate in RATES)
    return RecordedRun(found, ends, np.array(RATES), np.full(7, NAN), seconds)


def test_each_step_is_known_only_after_it_was_asked_for():
    known = Known(recorded().candidates)
    asked: list[int] = []
    for pick in steps(known, recorded(), Exhaustive(), Budget()):
        assert np.flatnonzero(known.begun).tolist() == sorted(asked)
        asked.append(pick.index)
    assert asked == [0, 4, 1, 5, 2, 6, 3], "cells in turn"
    assert np.allclose(np.exp(known.log_rates), RATES, equal_nan=True)


def test_recorded_durations_are_spent_and_a_run_without_one_takes_a_minute():
    slow = np.array([100.0, 70.0, 20.0, 10.0, 20.0, 20.0, 20.0])
    for given, wall_s, wanted in (
        (recorded(), 180.0, [0, 4, 1]), (recorded(), 179.0, [0, 4]), (recorded(slow), 180.0, [0, 4, 2, 5, 3]),
    ):  # fmt: skip
        found = steps(Known(given.candidates), given, Exhaustive(), Budget(wall_s=wall_s))
        assert [pick.index for pick in found] == wanted


@pytest.mark.parametrize(("strategy", "last"), [(Prune(), []), (Exhaustive(), [0, 1])])
def test_runs_that_were_ruled_out_take_no_turn_of_their_cell(strategy, last):
    known = Known(recorded().candidates)
    known.ruled_out[:2] = True
    asked = []
    while (pick := strategy.pick(known, ~known.begun)) is not None:
        known.begin(pick.index)
        asked.append(pick.index)
    assert asked == [2, 4, 3, 5, 6, *last]
