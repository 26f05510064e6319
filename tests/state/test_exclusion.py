"""Which nodes are excluded, and where a retry may go: tables over the state from events."""

import itertools
import math
import random

import pytest

from sweep.launcher.pilots_wanted import nodes_to_avoid
from sweep.outcomes import Outcome
from sweep.search.search import Search, choose
from sweep.state.events import NodeBad, NodeFit, NodeReleased
from sweep.state.exclusion import SLOW_IN_RUNS, by_chance
from sweep.state.retries import OUTSIDE, SAME_EVERYWHERE, config_fault, may_retry
from tests.support.made_events import planned, recorded, state_of

A, B, AB = frozenset({"a1", "a2"}), frozenset({"b1", "b2"}), frozenset({"a2", "b1"})


def record(run, attempt, outcome, nodes, time, accused=(), slow=None, **layout):
    return recorded(run, outcome, time, attempt, accused=accused, slow=slow, node_names=tuple(nodes), **layout)


@pytest.mark.parametrize("outcome", sorted(SAME_EVERYWHERE))
def test_failing_the_same_way_on_disjoint_nodes_is_a_config_fault(outcome):
    assert config_fault([outcome, outcome], [A, B])
    assert not may_retry([outcome, outcome], [A, B])
    assert not config_fault([outcome, outcome], [A, AB]), "they share a node"
    assert not config_fault([outcome], [A])
    assert not config_fault([outcome, outcome], [frozenset(), A]), "where the first ran is not known"


@pytest.mark.parametrize("outcome", sorted(OUTSIDE - {Outcome.UNKNOWN} | {Outcome.CANCELLED}))
def test_an_outcome_unrelated_to_the_run_is_no_config_fault(outcome):
    """Dead nodes and hardware errors happen to any run, too."""
    assert not config_fault([outcome, outcome], [A, B])
    assert may_retry([outcome, outcome], [A, B])


def test_different_failures_on_disjoint_nodes_are_no_config_fault():
    assert may_retry([Outcome.SEGFAULT, Outcome.HANG], [A, B])
    assert not may_retry([Outcome.NCCL_ERROR, Outcome.HANG, Outcome.NCCL_ERROR], [A, AB, B])


@pytest.mark.parametrize("outcome", [Outcome.XID_HARDWARE, Outcome.NODE_FAIL])
def test_a_node_that_failed_itself_is_excluded_at_once_and_so_is_another_that_the_run_meets(outcome):
    sweep_state = state_of(record("r", 1, outcome, ("a1", "a2"), 1.0, accused=["a2"]))
    assert list(sweep_state.excluded_nodes) == ["a2"]
    assert f"{outcome} in r.1" in sweep_state.excluded_nodes["a2"]
    sweep_state.apply_all([record("r", 2, outcome, ("b1", "b2"), 2.0, accused=["b1"])])
    assert sweep_state.excluded_nodes.keys() == {"a2", "b1"}
    assert sweep_state.run("r").next_attempt() == 3


@pytest.mark.parametrize("outcome", [Outcome.HANG, Outcome.UNKNOWN])
def test_a_run_that_fails_the_same_way_elsewhere_clears_the_nodes(outcome):
    hangs = [record(run, 1, outcome, ("a1", "a2"), 1.0, accused=["a2"]) for run in ("r", "q")]
    elsewhere = record("r", 2, outcome, ("b1", "b2"), 2.0, accused=["b1"])
    assert list(state_of(*hangs).excluded_nodes) == ["a2"]
    assert state_of(*hangs, elsewhere).excluded_nodes == {}


def test_one_hang_reports_a_node_and_success_elsewhere_excludes_it():
    hang = record("r", 1, Outcome.HANG, ("a1", "a2"), 1.0, accused=["a1"])
    assert state_of(hang).excluded_nodes == {}
    with_it = record("r", 2, Outcome.OK, ("a1", "b2"), 2.0)
    assert state_of(hang, with_it).excluded_nodes == {}
    without = record("r", 2, Outcome.OK, ("b1", "b2"), 2.0)
    assert state_of(hang, without).excluded_nodes == {"a1": "hang in r.1: no message; the run was ok without it"}
    before = record("r", 1, Outcome.OK, ("b1", "b2"), 1.0)
    again = record("r", 2, Outcome.HANG, ("a1", "a2"), 2.0, accused=["a1"])
    assert state_of(before, again).excluded_nodes == {}, "it was ok before the hang"


def test_hangs_of_two_different_runs_exclude_a_node_and_two_of_one_run_do_not():
    first = record("r", 1, Outcome.HANG, ("a1", "a2"), 1.0, accused=["a1"])
    again = record("r", 2, Outcome.HANG, ("a1", "b2"), 2.0, accused=["a1"])
    other = record("q", 1, Outcome.HANG, ("a1", "b1"), 3.0, accused=["a1"])
    assert state_of(first, again).excluded_nodes == {}
    assert "2 different runs" in state_of(first, other).excluded_nodes["a1"]


EIGHT = tuple(f"a{i}" for i in range(1, 9))


def slow_events(count, slow_in, nodes=EIGHT):
    return [record(f"r{i}", 1, Outcome.OK, nodes, float(i), slow="a1" if i < slow_in else None) for i in range(count)]


def test_a_check_of_its_speed_clears_a_slow_node_until_it_is_slow_in_as_many_runs_again():
    fit = NodeFit(time=9.0, node="a1", pilot="p")
    assert list(state_of(*slow_events(9, 9)).slow_nodes) == ["a1"]
    assert not state_of(*slow_events(9, 9), fit).excluded_nodes
    later = [record(f"s{i}", 1, Outcome.OK, EIGHT, 10.0 + i, slow="a1") for i in range(SLOW_IN_RUNS)]
    assert not state_of(*slow_events(9, 9), fit, *later[1:]).excluded_nodes
    assert list(state_of(*slow_events(9, 9), fit, *later).slow_nodes) == ["a1"]


def test_a_check_clears_no_other_report():
    bad = NodeBad(time=1.0, node="a1", reason="not clean")
    found = state_of(*slow_events(9, 9), bad)
    assert (found.excluded_nodes, found.slow_nodes) == ({"a1": "not clean"}, {})
    assert state_of(*slow_events(9, 9), bad, NodeFit(time=9.0, node="a1", pilot="p")).excluded_nodes == {
        "a1": "not clean"
    }


@pytest.mark.parametrize(("nodes", "count", "slow_in", "bad"), [
    (8, 2, 2, False), (8, SLOW_IN_RUNS, SLOW_IN_RUNS, True), (8, 6, 3, False), (8, 7, 4, True), (8, 40, 5, False),
    (2, 4, 4, False), (2, 5, 5, True), (2, 8, 7, False), (2, 9, 8, True), (3, 3, 3, True), (3, 4, 3, False),
])  # fmt: skip
def test_a_node_is_slow_where_it_was_the_slowest_more_often_than_by_chance(nodes, count, slow_in, bad):
    """Of few nodes one is often the slowest by chance."""
    assert ("a1" in state_of(*slow_events(count, slow_in, EIGHT[:nodes])).excluded_nodes) == bad


def test_the_chance_to_be_the_slowest_is_never_underestimated():
    """Against the binomial distribution; exact where a node was the slowest of every run."""
    for nodes, count, slowest in itertools.product((2, 3, 8), (1, 3, 7, 20), range(21)):
        share = 1 / nodes
        exact = sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(slowest, count + 1))
        if slowest <= count:
            assert by_chance(slowest, [nodes] * count) >= exact - 1e-12
            assert slowest < count or by_chance(slowest, [nodes] * count) == pytest.approx(exact)
    assert by_chance(3, [2]) == by_chance(3, []) == pytest.approx(1 / 8), "the others were measured elsewhere since"
    assert by_chance(2, [2, 4]) == pytest.approx((3 / 8) ** 2), "runs on different numbers of nodes"


@pytest.mark.parametrize(("nodes", "outcome", "layout"), [
    (("a1", "a2"), Outcome.OK, {"pp": 2}), (("a1", "a2"), Outcome.OK, {"ep": 2}), (("a1",), Outcome.OK, {}),
    (("a1", "a2"), Outcome.NAN_LOSS, {}),
])  # fmt: skip
def test_the_slowest_stage_or_expert_a_node_alone_and_a_failed_run_imply_nothing_about_a_node(nodes, outcome, layout):
    """The last stage computes the logits in every run: its node would be excluded wrongly."""
    events = [record(f"r{i}", 1, outcome, nodes, float(i), slow="a1", **layout) for i in range(9)]
    assert state_of(*events).excluded_nodes == {}
    slow = [record(f"s{i}", 1, Outcome.OK, EIGHT, float(i), slow="a1") for i in range(SLOW_IN_RUNS)]
    assert list(state_of(*events, *slow).excluded_nodes) == ["a1"], "nor do they speak for it"


def test_clearing_a_node_drops_reports_up_to_that_second_in_whatever_order_they_are_read():
    early, same, later = (NodeBad(time=time, node="a1", reason="not clean") for time in (0.5, 2.0, 2.5))
    clearings = [NodeReleased(time=time, node="a1") for time in (0.25, 2.0)]
    assert state_of(early, clearings[0]).excluded_nodes == {"a1": "not clean"}
    assert state_of(early, same, *clearings).excluded_nodes == {}
    assert state_of(early, same, *reversed(clearings)).excluded_nodes == {}
    assert state_of(early, later, *clearings).excluded_nodes == {"a1": "not clean"}
    assert state_of(*slow_events(9, 9), NodeReleased(time=99.0, node="a1")).excluded_nodes == {}


def test_the_order_of_records_does_not_matter():
    events = [
        record("r", 1, Outcome.HANG, ("a1", "a2"), 1.0, accused=["a1"]),
        record("r", 2, Outcome.OK, ("b1", "b2"), 2.0),
        record("q", 1, Outcome.XID_HARDWARE, ("c1", "c2"), 3.0, accused=["c2"]),
        *slow_events(4, 4),
    ]
    expected = sorted(state_of(*events).excluded_nodes)
    assert expected == ["a1", "c2"]
    for seed in range(20):
        random.Random(seed).shuffle(events)
        assert sorted(state_of(*events).excluded_nodes) == expected


def test_a_retry_avoids_the_nodes_of_its_failure():
    runs = [planned(1, nodes=2)]
    sweep_state = state_of(record(runs[0].run_id, 1, Outcome.HANG, ("a1", "a2"), 1.0))
    search = Search(runs)
    assert choose(runs, sweep_state, 2, 1000, 10, search=search, names=["a1", "a2"]) is None
    assert choose(runs, sweep_state, 2, 1000, 10, search=search, names=["a2", "b1"]) is None
    assert choose(runs, sweep_state, 2, 1000, 10, search=search, names=["b1", "b2"]).nodes == ("b1", "b2")
    assert choose(runs, sweep_state, 2, 1000, 10, search=search, names=["a1", "a2"], same_nodes=True).attempt == 2
    assert nodes_to_avoid(runs, sweep_state, 2) == {"a1", "a2"}
    assert nodes_to_avoid([planned(2, nodes=2), *runs], sweep_state, 2) == frozenset(), "such a pilot has work anywhere"


def test_only_a_nodes_own_runs_since_it_was_cleared_make_it_slow():
    """Slow in the first of six runs; then in three of five. A run on other nodes speaks neither for nor against it."""
    old, others = slow_events(6, 1), [record(f"o{i}", 1, Outcome.OK, ("b1", "b2"), 20.0 + i) for i in range(9)]
    cleared = NodeReleased(time=5.0, node="a1")
    new = [
        record(f"n{i}", 1, Outcome.OK, EIGHT, 10.0 + i, slow="a1" if i < SLOW_IN_RUNS else None)
        for i in range(SLOW_IN_RUNS + 2)
    ]
    reason = "held the slowest rank in 3 of its 5 runs over several nodes whose ranks have equal work"
    assert state_of(*old, *others, cleared, *new).excluded_nodes == {"a1": reason}
    assert state_of(*old, *others, *new).excluded_nodes == {}, "4 of 11"
    late = NodeReleased(time=10.0, node="a1")
    assert state_of(*old, *others, late, *new).excluded_nodes == {}, "the first of them is cleared too"


def test_of_the_runs_at_the_second_of_the_clearing_none_speaks_for_a_node():
    """Four slow runs since, and as many that were not, of which one is of the very second of the clearing."""
    slow = [record(f"s{i}", 1, Outcome.OK, EIGHT, 3.0, slow="a1") for i in range(4)]
    well = [record(f"w{i}", 1, Outcome.OK, EIGHT, 2.0 if i == 0 else 3.0) for i in range(4)]
    assert list(state_of(*slow, *well, NodeReleased(time=2.0, node="a1")).excluded_nodes) == ["a1"]
    assert state_of(*slow, *well).excluded_nodes == {}


@pytest.mark.parametrize(("on_the_node", "in_all", "bad"), [(3, 9, True), (2, 7, False), (2, 6, True), (2, 3, True)])
def test_hangs_exclude_a_node_at_a_third_of_all_runs_that_hung(on_the_node, in_all, bad):
    hangs = [
        record(f"r{i}", 1, Outcome.HANG, (node, "m"), float(i), accused=[node])
        for i, node in ((i, "a1" if i < on_the_node else f"n{i}") for i in range(in_all))
    ]
    assert ("a1" in state_of(*hangs).excluded_nodes) == bad
