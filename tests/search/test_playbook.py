"""The playbook's three steps on a small cluster whose rates are stated."""

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.search.strategies import OneAxisFirst
from tests.support.configurations import made_known, run


def known(*layouts, nodes=None):
    given = [
        {**run(**layout), "nodes": count} for layout, count in zip(layouts, nodes or [1] * len(layouts), strict=True)
    ]
    return made_known(given)


def searched(found, rates, free=None):
    """[(index, reason)] until the strategy stops; ``rates``: of each run, None where it fails."""
    strategy, asked = OneAxisFirst(), []
    while True:
        able = ~found.begun & (
            np.ones(len(rates), dtype=bool) if free is None else np.isin(np.arange(len(rates)), free)
        )
        picked = strategy.pick(found, able)
        assert bool(strategy.open(found, able).any()) is (picked is not None)
        if picked is None:
            return asked
        asked.append((picked.index, picked.why))
        rate = rates[picked.index]
        found.end(picked.index, Outcome.OK if rate else Outcome.UNKNOWN, rate)


BASE = {"dp": 8, "tp": 1, "mbs": 1}
LAYOUTS = (
    BASE,
    {"dp": 8, "tp": 1, "mbs": 2},
    {"dp": 4, "tp": 2, "mbs": 1},
    {"dp": 8, "tp": 1, "mbs": 1, "zero": 1},
    {"dp": 4, "tp": 2, "mbs": 2},
    {"dp": 4, "tp": 2, "mbs": 1, "zero": 1},
    {"dp": 4, "tp": 2, "mbs": 2, "zero": 1},
    {"dp": 8, "tp": 1, "mbs": 2, "zero": 1},
)


def test_each_axis_alone_comes_first_and_then_combinations_the_best_first():
    found = searched(known(*LAYOUTS), [100, 140, 85, 110, 99, 98, 97, 150])
    assert [index for index, _ in found[:4]] == [0, 1, 2, 3]
    assert found[0][1] == "the first feasible run, as the base of its cell"
    assert [why for _, why in found[1:4]] == [
        f"{axis} alone, against the cell's base" for axis in ("micro_batch_size", "tp", "zero")
    ]
    # Sums of effects: zero and micro-batch; with tp 2 less log(100 / 85), which is not yet a fifth
    assert [index for index, _ in found[4:]] == [7, 6, 4, 5]
    assert {why for _, why in found[4:]} == {"combination of values that help alone"}


@pytest.mark.parametrize(("rate", "dropped"), [(79, True), (81, False)])
def test_a_value_that_costs_over_a_fifth_is_dropped(rate, dropped):
    found = [index for index, _ in searched(known(*LAYOUTS), [100, 140, rate, 110, 99, 98, 97, 150])]
    assert (found == [0, 1, 2, 3, 7]) is dropped
    assert (len(found) == 8) is not dropped


def test_a_value_that_failed_alone_has_no_effect_and_the_base_is_the_first_success():
    found = [index for index, _ in searched(known(*LAYOUTS), [None, 140, 85, 110, 99, 98, 97, 150])]
    assert found[:2] == [0, 1]
    # Against micro-batch 2: tp 2 (4), zero 1 (7) alone; micro-batch 1 was the one that failed
    assert found[2:4] == [4, 7]


def test_recomputation_is_an_axis_of_its_own():
    found = searched(known(BASE, {**BASE, "recompute": "full"}), [100, 90])
    assert found[1] == (1, "recompute alone, against the cell's base")


def test_cells_come_in_turns_the_one_with_the_fewest_runs_first():
    two = known(BASE, {**BASE, "mbs": 2}, BASE, {**BASE, "mbs": 2}, nodes=[1, 1, 2, 2])
    assert [index for index, _ in searched(two, [100, 90, 100, 90])] == [0, 2, 1, 3]


def test_only_free_runs_are_picked():
    found = [index for index, _ in searched(known(*LAYOUTS), [100, 140, 85, 110, 99, 98, 97, 150], free=[0, 3, 6])]
    assert found == [0, 3, 6]
    assert OneAxisFirst().pick(known(*LAYOUTS), np.zeros(8, dtype=bool)) is None
