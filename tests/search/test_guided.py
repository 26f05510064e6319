"""The guided search's figures against plain loops: gains, turns, when a cell stops."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.search.gaussian import exceeds, expected_improvement
from sweep.search.guided import WORTH, Guided, by_turn, missed, what_is_left, wider
from sweep.search.observations import Known
from sweep.search.search import Search
from tests.support.configurations import made_known, run
from tests.support.made_sweeps import GRID

GUIDED = Guided()


def known(ends, repeats=1):
    """Two cells of eight runs (four micro-batches, two ZeRO stages) each; ``ends``: place -> rate (None: failed)."""
    given = [
        {**run(dp=8, mbs=mbs, zero=zero, repeat=repeat), "nodes": nodes}
        for repeat in range(repeats) for nodes in (1, 2) for mbs in (1, 2, 4, 8) for zero in (0, 1)
    ]  # fmt: skip
    return made_known(given, ends.items())


def left_of(found):
    return what_is_left(found, np.flatnonzero(~found.begun))


def test_gains_are_over_the_cells_best_and_a_cells_first_success_counts_for_a_factor_of_e():
    found = known({0: 1000.0, 3: 1100.0, 8: None})
    left, posterior = left_of(found), found.posterior()
    for at, row in enumerate(left.rows):
        one = np.array([row])
        works, mean = posterior.success(one)[0], posterior.log_rates(one)
        if row >= 8:
            assert left.gains[at] == pytest.approx(works * math.log(math.e))
            continue
        best = np.log([1100.0])
        spreads, noise = posterior.spreads(one), posterior.fit.scales.noise
        shown = wider(found, one) * (spreads**2 + noise**2) ** 0.5
        gain, missed = (expected_improvement(mean, each, best)[0] for each in (spreads, shown))
        chance = exceeds(mean, shown, best + math.log(1 + WORTH))[0]
        assert left.gains[at] == pytest.approx(gain * works)
        assert left.missed[:, at] == pytest.approx([missed * works, chance * works])


@pytest.mark.parametrize(("ends", "turns"), [
    ({}, [0, 1]), ({0: 100.0}, [1, 0]), ({8: 100.0, 9: 100.0, 0: None}, [0, 1]),
    (dict.fromkeys(range(4), 100.0), [1, 0]),
    ({**dict.fromkeys(range(5), 100.0), **dict.fromkeys(range(8, 12))}, [1, 0]),
    ({**dict.fromkeys(range(4)), **dict.fromkeys(range(8, 13), 100.0)}, [0, 1]),
    ({**dict.fromkeys(range(4), 100.0), **dict.fromkeys(range(8, 12))}, [1, 0]),
    (dict.fromkeys(range(8), 100.0), [1]),
])  # fmt: skip
def test_cells_take_turns_by_their_runs_until_each_has_some_and_then_the_greatest_gain_is_next(ends, turns):
    """A cell without any success has the greatest gain."""
    found = known(ends)
    assert by_turn(found, left_of(found), 4).tolist() == turns


def stopped(found, **rules):
    """Cell 0, of which no run is open then."""
    return not Guided(**rules).open(found, ~found.begun)[found.candidates.cells == 0].any()


def test_a_cell_is_not_stopped_before_two_runs_and_is_when_no_run_is_left():
    assert not stopped(known({0: 1000.0}), miss=9.0)
    assert stopped(known({0: 1000.0, 1: 1000.0}), miss=9.0)
    assert stopped(known(dict.fromkeys(range(8), 1000.0)), miss=0.0)


def test_a_cell_stops_once_all_that_is_left_gains_at_most_what_may_be_missed_with_as_little_chance_over_3_percent():
    found = known(dict.fromkeys((0, 3, 4, 7), 1000.0))
    left = left_of(found)
    gain, chance = left.missed[:, left.of(0)].sum(axis=1)
    assert 0 < gain < chance < 3
    assert not stopped(found, miss=chance * 0.99)
    assert stopped(found, miss=chance * 1.01)
    mirrored = replace(left, missed=left.missed[::-1])
    assert not Guided(miss=chance * 0.99)._stops(found, mirrored, 0), "the expected gain is as large"
    assert Guided(miss=chance * 1.01)._stops(found, mirrored, 0)


def test_once_repeats_have_shown_the_noise_the_gain_alone_stops_a_cell():
    plan = known({}, repeats=2).candidates.take(np.array([*range(16), 16, 19]))
    found = Known(plan)
    for place in (0, 3, 4, 7, 16):
        found.end(place, Outcome.OK, 1000.0)
    left = what_is_left(found, np.arange(16)[~found.begun[:16]])
    gain, chance = left.missed[:, left.of(0)].sum(axis=1)
    assert gain < chance
    assert Guided(miss=gain * 1.01)._stops(found, left, 0)
    assert not Guided(miss=gain * 0.99)._stops(found, left, 0)


def test_what_is_missed_is_what_the_cell_was_ended_by_and_nothing_of_repeats_and_of_cells_without_a_success():
    found = known(dict.fromkeys((0, 3, 4, 7), 1000.0), repeats=2)
    rows = np.flatnonzero(~found.begun)
    gains, chances = missed(found, rows)
    counted = (found.candidates.cells[rows] == 0) & (found.candidates.repeats[rows] == 0)
    left = left_of(found)
    assert [gains[counted].sum(), chances[counted].sum()] == pytest.approx(
        left.missed[:, left.of(0)[: counted.sum()]].sum(axis=1)
    )
    assert not gains[~counted].any()
    assert not chances[~counted].any()
    assert (chances[counted] > 0).all()
    assert (chances[counted] < 0.5).all(), "a run over 3 % faster is less likely than a slower one"


def test_a_pick_states_how_likely_it_is_to_work_or_what_it_may_gain():
    first = GUIDED.pick(known({}), np.ones(16, dtype=bool))
    assert "tokens/s/GPU predicted, " in first.why
    assert first.why.endswith("% likely to work")
    found = known(dict.fromkeys((0, 8), 1000.0))
    again = GUIDED.pick(found, ~found.begun)
    left = left_of(found)
    gain = left.gains[list(left.rows).index(again.index)]
    assert again.why == f"expected to improve its cell's best by {math.expm1(gain):.1%}"


def test_repeats_wait_for_all_cells_but_those_of_top_configurations_planned_at_the_end_come_first():
    given = dict.fromkeys((0, 3, 8, 11), 1000.0)
    of_all = known(given | {16: 1000.0}, repeats=2)
    assert not of_all.candidates.measured_again.any()
    assert of_all.candidates.repeats[GUIDED.pick(of_all, ~of_all.begun).index] == 0
    plan = of_all.candidates.take(np.array([*range(16), 16, 19]))
    assert np.flatnonzero(plan.measured_again).tolist() == [16, 17]
    at_end = Known(plan)
    for place in (*given, 16):
        at_end.end(place, Outcome.OK, 1300.0 if place == 16 else 1000.0)
    assert not GUIDED._stops(at_end, left_of(at_end), 0), "a cell is open"
    assert GUIDED.pick(at_end, ~at_end.begun).index == 17
    at_end.end(17, Outcome.OK, 900.0)
    assert plan.repeats[GUIDED.pick(at_end, ~at_end.begun).index] == 0


def test_when_all_cells_have_stopped_the_top_configuration_with_the_fewest_repeats_is_repeated():
    found = known({place: 1000.0 - place for place in range(16)}, repeats=3)
    assert GUIDED.pick(found, ~found.begun).index == 16, "the best's first repeat"
    found.end(16, Outcome.OK, 1000.0)
    picked = GUIDED.pick(found, ~found.begun)
    assert found.candidates.repeats[picked.index] == 1
    assert picked.why == "repeat of a top configuration: within 3% of its cell's best, or one of the best two"
    assert GUIDED.pick(found, np.zeros(48, dtype=bool)) is None
    failed = known(dict.fromkeys(range(16)), repeats=2)
    assert GUIDED.pick(failed, ~failed.begun) is None, "nothing worked, so there is no top configuration"


def test_a_prediction_is_trusted_less_than_the_posterior_says_and_least_in_a_cell_with_few_runs():
    few, many = known({0: 1000.0, 8: 1000.0}), known(dict.fromkeys([*range(7), 8], 1000.0))
    row = np.array([7])
    assert wider(known({8: 1000.0}), row) == wider(few, row), "none counts as one"
    assert wider(few, row) == pytest.approx(1.3 * 6**0.5)
    assert 1.3 < wider(many, row)[0] < wider(few, row)[0]


def test_miss_is_a_share_that_the_search_gets_and_other_strategies_refuse():
    grid = parse_grid(f"{GRID}miss: 2%\n", "grid.yaml")
    assert (grid.strategy, grid.limits) == ("guided", {"miss": 0.02})
    assert Search((), strategy=grid.strategy, limits=grid.limits)._strategy == Guided(miss=0.02)
    with pytest.raises(SweepError, match="only `strategy: guided`"):
        parse_grid(f"{GRID}strategy: prune\nmiss: 2%\n", "grid.yaml")
