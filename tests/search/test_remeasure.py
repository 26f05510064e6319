"""Which configurations are measured again at a sweep's end: the best two at least, within a share of the cell."""

import json

import pytest

from sweep.contract import Run
from sweep.inputs.topology import Spot
from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.plugins import STRATEGY
from sweep.search.observations import Known
from sweep.search.placing import Tree
from sweep.search.remeasure import room, to_repeat, top_configurations, undecided
from sweep.search.search import Search, choose
from sweep.state.state import SweepState
from tests.support.configurations import made_known, run
from tests.support.made_events import planned_as as planned
from tests.support.made_events import recorded, started

SIZES = (1, 2, 4, 8, 16, 32)


def rows_to_repeat(known, share):
    return [row for _, row in to_repeat(known, share)]


def known_of(rates: list[float | None], repeats: tuple[int, ...] = ()) -> Known:
    """A cell whose runs have these rates; ``repeats``: further runs of the configurations with these indices."""
    values = [run(mbs=SIZES[i]) for i in range(len(rates) - len(repeats))]
    values += [run(mbs=SIZES[i], repeat=1) for i in repeats]
    return made_known(values, [(index, rate) for index, rate in enumerate(rates) if rate is not None])


@pytest.mark.parametrize(
    ("rates", "share", "expected"),
    [
        ([100.0, 200.0, 300.0, 400.0], 0.0, [3, 2]),  # at least two
        ([400.0, 399.0, 398.0, 100.0], 0.1, [0, 1]),  # no more than the share, and two
        ([400.0, 399.0, 398.0, 100.0], 1.0, [0, 1, 2]),  # all within 3 % of the best
        ([400.0], 1.0, []),  # nothing to compare with
        ([400.0, None, None], 1.0, []),
        ([400.0, 300.0, None], 0.1, [0, 1]),
    ],
)
def test_the_best_two_at_least_and_no_more_than_the_share(
    rates: list[float | None], share: float, expected: list[int]
) -> None:
    assert rows_to_repeat(known_of(rates), share) == expected


def test_what_has_a_repeat_gets_no_other_one_and_counts_for_the_share() -> None:
    assert rows_to_repeat(known_of([400.0, 300.0, 200.0, 399.0, 301.0], (0, 1)), 0.1) == []
    assert rows_to_repeat(known_of([400.0, 300.0, 200.0, 390.0, None], (0, 1)), 0.1) == [], "planned, not measured yet"
    assert rows_to_repeat(known_of([400.0, 399.0, 398.0, 400.0, 399.0], (0, 1)), 0.1) == [], "the share is used up"
    dethroned = known_of([400.0, 300.0, 200.0, 100.0, 310.0], (0, 1))
    assert top_configurations(dethroned).tolist() == [1, 0]
    assert rows_to_repeat(dethroned, 0.1) == [4, 3], "their order is not decided"
    assert rows_to_repeat(known_of([400.0, 150.0, 200.0, 390.0, 150.0], (0, 1)), 1.0) == [2], "another is second now"


def test_what_was_stopped_is_no_top_configuration():
    known = known_of([400.0, 300.0, None])
    known.end(2, Outcome.OK, 350.0, stopped=True)
    assert top_configurations(known).tolist() == [0, 1]


def test_the_best_two_are_repeated_until_their_order_is_decided() -> None:
    apart = known_of([400.0, 300.0, 100.0, 400.4, 300.3], (0, 1))
    assert undecided(apart) == []
    assert undecided(known_of([400.0, 300.0, 100.0, 408.0, 306.0], (0, 1))) == []
    assert undecided(known_of([400.0, 300.0, 100.0, 412.0, 309.0], (0, 1))) == [3, 4], "of twice the spread"
    thrice = [[400.0, 390.0, 100.0, None, 400 + off, 390 + off, 400 - off, 390 - off] for off in (1.4, 1.5)]
    assert [undecided(known_of(rates, (0, 1, 0, 1))) for rates in thrice] == [[], [4, 5]], "by a hair, at two looks"
    values = [run(mbs=m, repeat=again) | {"nodes": nodes} for again in (0, 1) for nodes in (1, 2) for m in (1, 2)]
    cells = made_known(values, enumerate([400.0, 300.0, 400.0, 399.0, 400.4, None, 398.0, 401.0]))
    assert undecided(cells) == [7, 6], "of the second cell; one of the first has no result"
    near = known_of([400.0, 399.0, 100.0, 398.0, 401.0], (0, 1))
    assert undecided(near) == [4, 3], "the last run of each"
    assert to_repeat(near, 0.1) == [(True, 4), (True, 3)], "after all first repeats"
    assert undecided(known_of([400.0, 399.0, 100.0, 398.0, None], (0, 1))) == [], "one has no result yet"
    assert undecided(known_of([400.0, 401.0], (0,))) == [], "no rival"
    assert undecided(known_of([400.0, 400.0, 100.0])) == [], "their first repeats come first"
    assert undecided(known_of([400.0, 400.0, 100.0, 400.0, 400.0], (0, 1))) == [3, 4], "no lead, and no noise"
    assert undecided(known_of([400.0, 300.0, 100.0, 400.0, 300.0], (0, 1))) == [], "a lead without any noise"
    assert undecided(known_of([400.0, 399.0, 398.0, 398.0, 401.0, 399.0], (0, 1, 2))) == [4, 3], "no third is"


def ended(one, rate, at, nodes=("a",)):
    facts = {"node_names": nodes, "started_at": at - 60, "ended_at": at}
    return [started(one.run_id, at - 60, nodes=nodes), recorded(one.run_id, time=at, rate=rate, **facts)]


@pytest.mark.parametrize("strategy", STRATEGY.table)
def test_every_strategy_measures_the_repeats_of_top_configurations(strategy: str) -> None:
    """Far apart, so that only "at least two" makes the second a top configuration."""
    runs = [planned(run(mbs=size, dp=8, gas=8)) for size in SIZES[:4]]
    state = SweepState()
    for place, each in enumerate(runs, start=1):
        state.apply_all(ended(each, 1000.0 * place, 60.0 * place))
    search = Search(runs, GPUS["h100"], strategy)
    again = [planned({**json.loads(runs[i].run_json), "repeat": 1}) for i in rows_to_repeat(search.update(state), 0.1)]
    assert [Run.from_json(each.run_json).layout.micro_batch_size for each in again] == [8, 4]
    search = Search([*runs, *again], GPUS["h100"], strategy)
    for place in range(len(again)):
        choice = choose([*runs, *again], state, 1, 1e6, 60, search=search, names=["a"])
        assert choice is not None, search.skipped(state)
        state.apply_all(ended(choice.planned, 3000.0, 1000.0 + 60 * place))
    assert not search.skipped(state)


def test_a_repeat_spreads_over_nodes_and_leaf_switches_and_waits_for_none() -> None:
    """Of nodes used equally often those on the other leaf switch; where all were used, the least used ones."""
    one = planned(run(mbs=4, dp=8))
    runs = [one, *(planned({**json.loads(one.run_json), "repeat": i}) for i in (1, 2, 3, 4))]
    tree = Tree({node: Spot(None, (leaf,)) for node, leaf in (("a", "s1"), ("b", "s1"), ("c", "s2"))})
    search, state = Search(runs, GPUS["h100"]), SweepState()
    for place, (free, expected) in enumerate((("abc", "c"), ("abc", "a"), ("ac", "a"), ("ac", "c"), ("abc", "b"))):
        choice = choose(runs, state, 1, 1e6, 60, search=search, names=list(free), tree=tree)
        assert choice is not None
        assert choice.nodes == (expected,), place
        state.apply_all(ended(choice.planned, 1000.0 + 100 * place, 60.0, nodes=choice.nodes))


@pytest.mark.parametrize(("rates", "share", "expected"), [
    ([1.0, 2.0, 3.0, 30.0, 20.0, 10.0], 0.1, [2, 1, 3, 4]),
    ([100.0, 99.0, 98.0, 30.0, 20.0, 10.0], 1.0, [0, 1, 3, 4, 2]),
])  # fmt: skip
def test_the_best_two_of_each_cell_come_before_any_cells_third(
    rates: list[float], share: float, expected: list[int]
) -> None:
    values = [run(mbs=size) | {"nodes": nodes} for nodes in (1, 2) for size in SIZES[:3]]
    assert rows_to_repeat(made_known(values, enumerate(rates)), share) == expected


@pytest.mark.parametrize(
    ("share", "runs", "repeated", "left"),
    [
        *((0.1, 400, 0, 40), (0.1, 400, 40, 0), (0.1, 400, 38, 2), (0.1, 400, 42, 0), (0.5, 40, 0, 20)),
        *((0.1, 79, 0, 8), (0.1, 16, 0, 8), (0.1, 16, 8, 0), (0.1, 6, 0, 3), (0.1, 4, 0, 2)),  # of a small sweep
        *((0.1, 3, 0, 0), (0.1, 2, 0, 0), (0.1, 1, 0, 0)),  # not a pair within half of the runs
        *((0.0, 400, 0, 0), (0.0, 16, 0, 0)),
    ],
)
def test_all_repeats_together_are_a_share_of_the_runs_and_few_in_a_small_sweep(
    share: float, runs: int, repeated: int, left: int
) -> None:
    assert room(share, runs, repeated) == left
    assert room(share, runs) == room(share, runs, 0), "a plan has none at first"
