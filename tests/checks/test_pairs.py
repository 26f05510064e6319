"""Who exchanges data with whom: every node is covered, for even and odd numbers."""

import itertools

import pytest

from sweep.checks.pairs import (
    Exchange,
    best_rates,
    disjoint,
    first_round,
    groups_of,
    once_more,
    second_round,
    slow_in_pairs,
    widths,
)


def named(count):
    return [f"n{at}" for at in range(count)]


@pytest.mark.parametrize("count", range(2, 18))
def test_both_rounds_cover_every_node_and_the_odd_one_has_a_partner(count):
    nodes = named(count)
    first = first_round(nodes)
    rates = {node: float(at) for at, node in enumerate(nodes)}
    second = second_round(nodes, rates, first)
    for groups in (first, second):
        assert {node for group in groups for node in group} == set(nodes)
        assert len(groups) == (count + 1) // 2
        assert all(len(set(group)) == 2 for group in groups)
        assert [len(part) for part in disjoint(groups)] == [count // 2, 1][: 1 + count % 2]
    if count > 4:
        met = {frozenset(pair) for group in first for pair in itertools.combinations(group, 2)}
        slowest = next(group for group in second if "n0" in group)
        assert not {frozenset(pair) for pair in itertools.combinations(slowest, 2) if "n0" in pair} & met


@pytest.mark.parametrize(
    ("count", "found"), [(1, []), (2, [2]), (3, [2, 3]), (7, [2, 4, 7]), (8, [2, 4, 8]), (12, [2, 4, 8, 12])]
)
def test_widths(count, found):
    assert widths(count) == found


@pytest.mark.parametrize("count", range(2, 14))
def test_groups_of_each_width_cover_every_node(count):
    for width in widths(count):
        groups = groups_of(named(count), width)
        assert {len(group) for group in groups} == {width}
        assert {node for group in groups for node in group} == set(named(count))


def exchange(nodes, seconds):
    rows = [{"operation": "send", "bytes": 1e9, "ranks": 2, "least_s": seconds}] if seconds else []
    return Exchange(nodes=nodes, rows=rows, problem="" if seconds else "hang")


def test_a_healthy_node_is_not_accused_for_its_partner():
    found = best_rates([exchange(("a", "sick"), 1.0), exchange(("b", "c"), 0.1),
                        exchange(("sick", "b"), 1.0), exchange(("a", "c"), 0.1)], "send")  # fmt: skip
    assert found == pytest.approx({"a": 1e10, "b": 1e10, "c": 1e10, "sick": 1e9})


def test_who_failed_in_both_rounds_has_no_rate():
    found = best_rates([exchange(("a", "x"), None), exchange(("x", "b"), None), exchange(("a", "b"), 0.1)], "send")
    assert found["x"] == 0.0
    assert found["a"] > 0


def rounds(*rates, sick=None, of_sick=1e9):
    """The exchanges of seven nodes in two rounds with these rates; those of the sick node have its own."""
    nodes = named(7)
    groups = [*first_round(nodes), ("n4", "n3"), ("n5", "n2"), ("n6", "n1"), ("n0", "n3")]
    seconds = [1e9 / (of_sick if sick in group else rate) for group, rate in zip(groups, rates, strict=True)]
    return [exchange(group, one) for group, one in zip(groups, seconds, strict=True)]


MEASURED = [253e6, 240e6, 257e6, 198e6, 267e6, 269e6, 203e6, 207e6]
"""of healthy nodes on a shared machine; the nodes' own best rates vary by 2 %, and the slowest is a quarter below"""


def test_what_pairs_vary_by_is_counted_once_per_pair():
    assert slow_in_pairs(rounds(*MEASURED), "send") == {}


def test_the_node_below_the_pairs_without_it_is_slow_and_its_partners_are_not():
    found = rounds(*MEASURED, sick="n3", of_sick=50e6)
    assert list(slow_in_pairs(found, "send")) == ["n3"]
    (again,) = once_more(["n3"], found)
    assert again[0] == "n3"
    assert not {again, again[::-1]} & {one.nodes for one in found}, "a node that it has not met"


def test_a_small_message_may_take_twice_as_long():
    def message(nodes, seconds):
        return Exchange(nodes=nodes, rows=[{"operation": "message", "bytes": 4096, "ranks": 2, "least_s": seconds}])

    others = [message((f"n{at}", f"n{at + 1}"), 1e-4) for at in range(6)]
    assert slow_in_pairs([*others, message(("sick", "n0"), 1.9e-4)], "message") == {}
    assert list(slow_in_pairs([*others, message(("sick", "n0"), 2.1e-4)], "message")) == ["sick"]


def test_of_two_nodes_none_is_slow():
    assert slow_in_pairs([exchange(("a", "b"), 1.0), exchange(("b", "a"), 0.1)], "send") == {}
