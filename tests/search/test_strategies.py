"""Strategies and budgets, on synthetic clusters with known rates."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.replay import InRandomOrder, replay, report
from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.plugins import STRATEGIES
from sweep.search.budget import Budget
from sweep.search.candidates import from_configurations
from sweep.search.chances import expected_improvement
from sweep.search.guided import Guided, Outlook
from sweep.search.observations import Known
from sweep.search.replay import RecordedRun, steps
from sweep.search.strategies import strategy_named
from tests.support.configurations import run
from tests.support.synthetic_cluster import truth


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_asks_for_each_run_once_at_most_and_ends(name):
    recorded = truth()
    done = replay(recorded, strategy_named(name), Budget())
    assert len(set(done.order)) == len(done.order) <= len(recorded.candidates)
    if name == "exhaustive":
        assert len(done.order) == len(recorded.candidates)
        assert report(done)["overall"]["worst_regret"] == 0


def test_an_unknown_strategy_is_named_with_the_choices():
    with pytest.raises(SweepError, match=r"guidedd.*did you mean guided"):
        strategy_named("guidedd")
    with pytest.raises(SweepError, match="choose from: exhaustive, guided, playbook, prune"):
        strategy_named("xyz")


@pytest.mark.parametrize("seed", range(4))
def test_guided_finds_the_best_with_a_fifth_of_the_runs_on_clusters_that_physics_does_not_know(seed):
    recorded = truth(seed)
    budget = Budget(runs=len(recorded.candidates) // 5)
    guided = report(replay(recorded, Guided(), budget))["overall"]
    by_chance = report(replay(recorded, InRandomOrder(), budget))["overall"]
    assert guided["mean_regret"] <= 0.03
    assert guided["mean_regret"] <= by_chance["mean_regret"]


def test_guided_stops_every_cell_when_what_is_left_is_not_worth_a_run_and_gives_its_probability():
    recorded, guided = truth(1), Guided()
    known = Known(recorded.candidates)
    for _ in steps(known, recorded, guided, Budget()):
        pass
    c = known.candidates
    assert known.begun.sum() < len(c)
    assert len(c.cell_names) == 2
    for cell, _ in enumerate(c.cell_names):
        left = np.flatnonzero(~known.begun & ~known.infeasible & (c.cells == cell))
        outlook = guided.outlook(known, cell)
        assert outlook.stopped
        assert outlook.gain <= guided.least_gain
        assert outlook.sure > 0.8
        tried = np.flatnonzero(known.begun & (c.cells == cell))
        for axis, codes in c.main_axes.items():
            untried = {str(c.columns[axis][i]) for i in left} - {str(c.columns[axis][i]) for i in tried}
            assert untried == {value for name, value, _ in outlook.excluded if name == axis}
            assert codes.any()
        assert all(chance <= guided.max_probability for _, _, chance in outlook.excluded)


def test_a_cell_stays_open_for_an_axis_value_that_nothing_measured():
    """The best is far ahead of all that was measured; no run with two stages was, in any cell."""
    given = [run(pp=pp, mbs=mbs, dp=8 // pp, gas=64 // (mbs * 8 // pp)) for pp in (1, 2) for mbs in (1, 2, 4, 8)]
    found = from_configurations([f"run-{i:016x}" for i in range(8)], given, GPUS["h100"])
    known, guided = Known(found), Guided()
    for place, rate in enumerate((1000.0, 1010.0, 1020.0, 1005.0)):
        known.end(place, Outcome.OK, rate)
    left = np.arange(4, 8)
    assert not guided.outlook(known, 0).stopped
    assert known.beliefs().spreads(left, measured=False).min() > 0.1


def test_until_a_cell_stops_how_sure_its_best_is_is_stated_only_if_it_was_computed():
    recorded, guided = truth(1), Guided()
    known, seen = Known(recorded.candidates), set()
    for _ in itertools.chain(steps(known, recorded, guided, Budget()), ["the end"]):
        for cell in range(2):
            found = guided.outlook(known, cell)
            early, large = known.tries[cell] < guided.min_tries, found.gain > guided.least_gain
            left = guided._left(known, np.flatnonzero(~known.begun & ~known.infeasible))
            alone = found.gain == left.gains[left.of(cell)].max(initial=-1.0)
            seen.add((bool(early), bool(large), found.stopped))
            assert not (found.stopped and (early or large))
            assert 0 <= found.sure <= 1
            if early or (large and alone):
                assert found.sure == 0
                assert (found.gain == np.inf) == early
    assert {(True, True, False), (False, True, False), (False, False, True)} <= seen


def test_of_a_cell_without_a_run_left_its_best_is_sure():
    found = from_configurations([f"run-{i:016x}" for i in range(2)], [run(dp=8), run(dp=8, mbs=2)], GPUS["h100"])
    known = Known(found)
    for place in range(2):
        known.end(place, Outcome.OK, 100.0)
    assert Guided().outlook(known, 0) == Outlook(True, 0.0, 1.0, ())


def test_a_value_that_one_run_alone_has_is_named_among_those_that_were_not_tried():
    """Four micro-batches; the largest, far slower than the others by all that is known, is never tried."""
    given = [run(dp=8, mbs=mbs, zero=zero) for mbs in (1, 2, 4) for zero in (0, 1)] + [run(dp=8, mbs=8)]
    known = Known(from_configurations([f"run-{i:016x}" for i in range(7)], given, GPUS["h100"]))
    for place in range(6):
        known.end(place, Outcome.OK, 1000.0)
    sure = Guided(max_probability=1.0, least_gain=10.0)
    assert [(axis, value) for axis, value, _ in sure.outlook(known, 0).excluded] == [("micro_batch_size", "8")]


def test_the_first_of_a_cell_is_the_run_of_most_rate_times_chance_to_work():
    """The larger the micro-batch, the faster, and the likelier out of memory."""
    given = [run(dp=8, mbs=mbs, gas=64, zero=3, recompute="full") for mbs in (1, 2, 4, 8, 16, 32)]
    known = Known(from_configurations([f"run-{i:016x}" for i in range(6)], given, GPUS["h100"]))
    rows = np.arange(6)
    rates, works = np.exp(known.predicted(rows)), known.success(rows)
    assert np.argmax(rates) != np.argmax(rates * works) != np.argmax(works)
    assert Guided().pick(known, np.ones(6, dtype=bool)).index == np.argmax(rates * works)


def test_the_next_of_a_cell_has_the_greatest_gain_per_second_or_an_untried_value_that_may_be_better():
    """Runs take one to four minutes. As long as one is worth it by its gain, no untried value comes before it."""
    recorded, guided, seen = truth(1), Guided(), set()
    c = replace(recorded.candidates, expected_s=60.0 * 2.0 ** (np.arange(len(recorded.candidates)) % 3))
    known = Known(c)
    for pick in steps(known, replace(recorded, candidates=c), guided, Budget()):
        cell = int(c.cells[pick.index])
        if not np.isfinite(known.best[cell]):
            continue
        left = np.flatnonzero((c.cells == cell) & ~known.begun & ~known.infeasible)
        beliefs, best = known.beliefs(), np.full(len(left), known.best[cell])
        spread = beliefs.spreads(left, measured=False)
        gains = expected_improvement(beliefs.log_rates(left), spread, best) * beliefs.success(left)
        by_second = left[np.argmax(gains / c.expected_s[left])]
        worth = gains[left == by_second][0] > guided.least_gain
        seen.add(bool(worth))
        if worth:
            assert pick.index == by_second
        else:
            begun = np.flatnonzero(known.begun & (c.cells == cell))
            untried = [name for name, codes in c.main_axes.items() if codes[pick.index] not in codes[begun]]
            assert untried or pick.index == by_second
    assert seen == {True, False}


def test_a_strategy_sees_no_result_before_it_asks_for_it():
    recorded = truth()
    shuffled = RecordedRun(
        recorded.candidates,
        recorded.outcomes,
        recorded.tokens_per_second_per_gpu[::-1].copy(),
        recorded.peak_memory_bytes,
    )
    assert replay(recorded, Guided(), Budget()).order[0] == replay(shuffled, Guided(), Budget()).order[0]


@pytest.mark.parametrize("best", [0, 2])
def test_the_run_that_finds_a_cells_best_is_counted_among_those_it_took(best):
    found = from_configurations([f"run-{i:016x}" for i in range(3)], [run(mbs=mbs) for mbs in (1, 2, 4)], GPUS["h100"])
    rates = np.full(3, 1000.0)
    rates[best] = 4000.0
    done = replay(RecordedRun(found, (Outcome.OK,) * 3, rates, np.full(3, np.nan)), InRandomOrder(), Budget())
    (cell,) = report(done)["cells"]
    assert cell["runs_to_within_2pct"] == list(done.order).index(best) + 1


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (Budget(runs=7), 7), (Budget(runs_per_cell=3), 6), (Budget(node_hours=10 / 60), None),
        (Budget(wall_s=300), 5), (Budget(node_hours_per_cell=4 / 60), 5),
    ],
)  # fmt: skip
def test_budgets(budget, expected):
    recorded = truth()
    order = replay(recorded, strategy_named("exhaustive"), budget).order
    hours = recorded.candidates.nodes[order].sum() / 60
    if expected is None:
        assert 6 / 60 < hours <= budget.node_hours + 1e-9
    else:
        assert len(order) == expected


def test_a_budget_must_be_positive_and_every_mistake_is_reported():
    with pytest.raises(SweepError) as error:
        Budget(runs=0, node_hours=-1)
    assert [mistake.path for mistake in error.value.mistakes] == ["budget.runs", "budget.node_hours"]


def test_finalists_are_repeated_and_others_are_not():
    given = [run(mbs=mbs, repeat=repeat) for mbs in (1, 2, 4, 8) for repeat in (0, 1)]
    found = from_configurations([f"run-{i:016x}" for i in range(8)], given, GPUS["h100"])
    rates = np.repeat([1000.0, 2000.0, 4000.0, 3970.0], 2)
    recorded = RecordedRun(found, (Outcome.OK,) * 8, rates, np.full(8, np.nan))
    order = replay(recorded, Guided(), Budget()).order
    repeated = {int(found.columns["micro_batch_size"][i]) for i in order if found.repeats[i]}
    assert repeated == {4, 8}
