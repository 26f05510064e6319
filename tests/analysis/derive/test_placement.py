"""What the choice of nodes does to speed."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.derive.placement import COLUMNS, against_packed, by_node_set, placed, spread, widest
from sweep.physics.statistics import variance_ratio_chance
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
    assert list(by_node_set(runs)["runs"]) == [1, 2]


def test_what_a_grid_s_placement_costs_is_taken_within_each_configuration():
    def record(accum, placement, nodes, step_s):
        env = {"A": "1"} if placement == "packed" else {"A": "1", "SWEEP_PLACEMENT": placement}
        run = made_run(nodes=2, gpus_per_node=1, dp=2, grad_accum=accum, env=env)
        return as_json(made_record(run, [step_s] * 3, node_names=nodes)) | {"final": True}

    runs = placed(
        pd.DataFrame(
            [
                record(1, "packed", ["n1", "n2"], 0.10),
                record(1, "spread", ["n1", "n3"], 0.12),
                record(2, "packed", ["n1", "n2"], 1.00),
                record(2, "spread", ["n2", "n4"], 1.10),
                record(2, "segment-2", ["n3", "n4"], 1.00),
            ]
        )
    )
    assert runs["configuration"].nunique() == 2
    found = against_packed(runs)
    assert found["spread"] == (pytest.approx((0.10 / 0.12 + 1 / 1.1) / 2), 2)
    assert found["segment-2"] == (pytest.approx(1.0), 1)


def test_a_switch_that_is_not_known_is_none():
    records = runs_of([(1, ["n1", "n2"], ["a", None], 0.1), (1, ["n3", "n4"], None, 0.1)])
    assert placed(records)["switches"].isna().all()


def test_failed_runs_and_records_without_nodes_are_left_out():
    records = runs_of([(1, ["n1"], None, 0.1), (1, ["n2"], None, 0.1)])
    assert placed(records.assign(outcome="hang")).empty
    assert placed(records.assign(node_names=None)).empty
    assert placed(records.drop(columns="node_names")).empty
    more = runs_of([(1, [name], None, 0.1) for name in ("n1", "n2", "n3")])
    more.loc[0, "step_time_median_s"] = 0.0
    assert placed(more)["node_set"].tolist() == ["n2", "n3"]


def test_variance_components_are_those_of_sums_over_sets_of_unequal_size():
    """Two configurations; sets of 3, 1 and 2 runs, and of 2 and 2."""
    values = {
        (0, "a"): (1.0, 1.02, 0.97),
        (0, "b"): (1.1,),
        (0, "c"): (0.9, 0.95),
        (1, "a"): (1, 1.2),
        (1, "b"): (0.8, 1),
    }
    rows = [(conf, nodes, ratio) for (conf, nodes), ratios in values.items() for ratio in ratios]
    runs = pd.DataFrame(rows, columns=["configuration", "node_set", "ratio"])
    logs = {key: np.log(ratios) for key, ratios in values.items()}
    everything = {conf: np.concatenate([v for key, v in logs.items() if key[0] == conf]) for conf in (0, 1)}
    inside, among = 10 - 5, 5 - 2
    within = sum(((v - v.mean()) ** 2).sum() for v in logs.values()) / inside
    above = sum(len(v) * (v.mean() - everything[conf].mean()) ** 2 for (conf, _), v in logs.items()) / among
    per_set = (10 - (9 + 1 + 4) / 6 - (4 + 4) / 4) / among
    found = spread(runs)
    assert found.within == pytest.approx(math.sqrt(within))
    assert found.between == pytest.approx(math.sqrt((above - within) / per_set))
    assert found.chance == pytest.approx(variance_ratio_chance(above / within, among, inside))


@pytest.mark.parametrize(("runs", "within", "between", "chance"), [
    ({"a": (1,), "b": (2,)}, None, None, 1),  # no two on the same nodes: nothing is claimed
    ({"a": (0.9, 1.1)}, None, None, 1),  # nor of one set of nodes
    ({"a": (1, 1), "b": (2,)}, 0, "more", 0), ({"a": (1, 1), "b": (2, 2)}, 0, "more", 0),
    ({"a": (1, 1), "b": (1, 1)}, 0, 0, 1), ({"a": (0.9, 1.1), "b": (0.9, 1.1)}, "more", 0, 1),
])  # fmt: skip
def test_what_differs_is_the_nodes_as_far_as_runs_on_the_same_ones_agree(runs, within, between, chance):
    rows = [(0, nodes, ratio) for nodes, ratios in runs.items() for ratio in ratios]
    found = spread(pd.DataFrame(rows, columns=["configuration", "node_set", "ratio"]))
    for value, wanted in ((found.within, within), (found.between, between), (found.chance, chance)):
        assert math.isnan(value) if wanted is None else value > 0 if wanted == "more" else value == wanted


def test_a_table_of_placements_has_its_columns_from_0_on_and_the_slowest_set_first():
    table = [(1, ["n1"], ["a"], 0.1), (1, ["n2"], ["a"], 0.1), (1, ["n3"], ["b"], 0.2), (1, ["n3"], ["b"], 0.4)]
    runs = placed(runs_of(table))
    assert list(runs) == list(COLUMNS)
    assert runs.index.tolist() == [0, 1, 2, 3]
    sets = by_node_set(runs)
    assert sets["node_set"].tolist() == ["n3", "n1", "n2"], "of equal ones by name"
    assert sets.index.tolist() == [0, 1, 2]
    assert sets.iloc[0][["low", "ratio", "high"]].tolist() == pytest.approx([0.15 / 0.4, (0.375 + 0.75) / 2, 0.75])


def test_as_many_of_the_widest_configurations_are_named_as_are_asked_for():
    runs = pd.DataFrame({"configuration": [7, 7, 8, 8, 9, 9], "node_set": "a", "ratio": [1, 1.1, 1, 1.3, 1, 1.2]})
    assert [list(widest(runs, most)) for most in (0, 1, 2, 9)] == [[], [8], [8, 9], [8, 9, 7]]
