"""What the choice of nodes does to speed."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.derive.placement import by_node_set, placed, spread, widest
from analysis.statistics import variance_ratio_chance
from tests.support.made_records import as_json, made_record, made_run


def runs_of(table):
    """[(grad_accum as the configuration, nodes, switches or None, step time in s)] as records."""
    rows = []
    for number, (accum, nodes, switches, step_s) in enumerate(table):
        run = made_run(nodes=len(nodes), gpus_per_node=1, dp=len(nodes), grad_accum=accum, repeat=number)
        record = made_record(run, [step_s] * 3, node_names=nodes, leaf_switches=switches or ())
        rows.append(as_json(record) | {"final": True})
    return pd.DataFrame(rows)


def test_only_configurations_on_several_sets_of_nodes_count_and_the_order_of_nodes_does_not():
    records = runs_of(
        [
            (1, ["n1", "n2"], ["a", "a"], 0.10),
            (1, ["n2", "n1"], ["a", "a"], 0.10),
            (1, ["n1", "n3"], ["a", "b"], 0.11),
            (2, ["n1", "n2"], ["a", "a"], 0.20),
            (2, ["n2", "n1"], ["a", "a"], 0.30),
        ]
    )
    runs = placed(records)
    assert list(runs["node_set"]) == ["n1, n2", "n1, n2", "n1, n3"]
    assert list(runs["switches"]) == [1, 1, 2]
    assert list(runs["ratio"]) == pytest.approx([1.0, 1.0, 0.1 / 0.11])
    sets = by_node_set(runs)
    assert list(sets["node_set"]) == ["n1, n3", "n1, n2"]
    assert list(sets["runs"]) == [1, 2]


def test_a_switch_that_is_not_known_is_none():
    records = runs_of([(1, ["n1", "n2"], ["a", None], 0.1), (1, ["n3", "n4"], None, 0.1)])
    assert placed(records)["switches"].isna().all()


def test_failed_runs_and_records_without_nodes_are_left_out():
    records = runs_of([(1, ["n1"], None, 0.1), (1, ["n2"], None, 0.1)])
    assert placed(records.assign(outcome="hang")).empty
    assert placed(records.assign(node_names=None)).empty
    assert placed(records.drop(columns="node_names")).empty


def test_the_spread_is_divided_into_what_nodes_add_and_what_is_left():
    """Of many made runs: 2 % between sets of nodes and 0.5 % within."""
    random = np.random.default_rng(7)
    table = []
    for accum in range(1, 21):
        for at in range(6):
            level = math.exp(random.normal(0, 0.02))
            table += [(accum, [f"n{at}"], None, 0.1 * level * math.exp(random.normal(0, 0.005))) for _ in range(3)]
    found = spread(placed(runs_of(table)))
    assert found.within == pytest.approx(0.005, rel=0.15)
    assert found.between == pytest.approx(0.02, rel=0.2)
    assert found.chance < 1e-6


def test_chance_differences_are_claimed_as_rarely_as_the_level_allows():
    random = np.random.default_rng(3)
    false = 0
    for _ in range(200):
        levels = 1 + random.normal(0, 0.01, (8, 2))
        runs = pd.DataFrame({"configuration": 0, "node_set": [f"n{at // 2}" for at in range(8 * 2)],
                             "ratio": levels.ravel()})  # fmt: skip
        false += spread(runs).chance < 0.05
    assert 2 <= false <= 20  # 10 expected of 200 at 5 %


def test_without_two_runs_on_the_same_nodes_nothing_is_claimed():
    found = spread(placed(runs_of([(1, ["n1"], None, 0.1), (1, ["n2"], None, 0.2)])))
    assert math.isnan(found.within)
    assert found.chance == 1.0


def test_the_widest_configuration_comes_first():
    table = [(1, ["n1"], None, 0.1), (1, ["n2"], None, 0.101), (2, ["n1"], None, 0.1), (2, ["n2"], None, 0.2)]
    runs = placed(runs_of(table))
    assert widest(runs, 1) == [runs["configuration"].iloc[-1]]


@pytest.mark.parametrize(
    ("ratio", "above", "below", "chance"),
    [(3.7083, 3, 10, 0.05), (1.0, 5, 5, 0.5), (161.4476, 1, 1, 0.05), (2.9782, 10, 10, 0.05)],
)
def test_the_f_distribution(ratio, above, below, chance):
    """Of printed tables (Abramowitz and Stegun, table 26.9)."""
    assert variance_ratio_chance(ratio, above, below) == pytest.approx(chance, abs=1e-4)
    assert variance_ratio_chance(math.nan, above, below) == 1.0
    assert variance_ratio_chance(math.inf, above, below) == 0.0


def test_runs_that_all_took_the_same_time_show_no_effect_of_the_nodes():
    nodes = (["n1", "n2"], ["n3", "n4"])
    found = spread(placed(runs_of([(1, where, None, 0.10) for where in nodes for _ in range(2)])))
    assert (found.within, found.between) == (0, 0)
    assert not found.chance < 1
