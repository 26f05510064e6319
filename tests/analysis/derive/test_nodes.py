"""The health of nodes, and times of their ranks."""

import pandas as pd
import pytest

from analysis.derive.nodes import HEALTH_COLUMNS, RANK_COLUMNS, health, rank_times


def node_records():
    rows = [
        {"run_id": "a", "node_names": ["n1", "n2"], "rank_step_time_median_s": [1.0, 1.0, 1.0, 1.5], "slow_rank": 3},
        {"run_id": "b", "node_names": ["n1", "n3"], "rank_step_time_median_s": [1.0, 1.0, 1.0, 1.0], "slow_rank": None},
        {"run_id": "c", "node_names": ["n3"], "rank_step_time_median_s": None, "slow_rank": None, "outcome": "hang"},
    ]
    table = pd.DataFrame(rows).assign(model="m", nodes=2, gpus_per_node=2, attempt=1)
    return table.assign(outcome=table["outcome"].fillna("ok"))


def test_a_slow_rank_identifies_its_node():
    ranks = rank_times(node_records())
    assert ranks.loc[ranks["ratio"] > 1.2, ["node", "rank"]].to_numpy().tolist() == [["n2", 3]]
    table = health(node_records()).set_index("node")
    assert table.index[0] == "n2"
    assert table.loc["n2", ["attempts", "ok", "slow"]].tolist() == [1, 1, 1]
    assert table.loc["n2", "ratio"] == pytest.approx(1.5)
    assert table.loc["n3", ["attempts", "ok", "faults"]].tolist() == [2, 1, 1]
    assert health(node_records()[["run_id", "model", "nodes"]]).empty


def test_ranks_are_numbered_node_by_node():
    """Rank 3 of two nodes with two GPUs is on the second node; rank 1 on the first, though 1 % 2 is 1."""
    rows = [
        {"run_id": f"r{rank}", "node_names": ["n1", "n2"], "slow_rank": rank, "outcome": "ok", "attempt": 1}
        for rank in (1, 1, 1, 2)
    ]
    table = pd.DataFrame(rows).assign(model="m", nodes=2, gpus_per_node=2)
    slow = health(table).set_index("node")["slow"].to_dict()
    assert slow == {"n1": 3, "n2": 1}


@pytest.mark.parametrize(("changes", "slow"), [
    ({}, 1), ({"pp": 2}, 0), ({"ep": 2}, 0), ({"slow_rank": None}, 0), ({"slow_rank": 4}, 0), ({"gpus_per_node": 0}, 0),
    ({"gpus_per_node": None}, 0), ({"slow_rank": -1}, 0),
])  # fmt: skip
def test_a_slow_rank_accuses_its_node_where_all_ranks_have_equal_work(changes, slow):
    row = {"run_id": "r", "attempt": 1, "node_names": ["n1", "n2"], "slow_rank": 3, "outcome": "ok", "pp": 1, "ep": 1}
    made = pd.DataFrame([row | {"model": "m", "nodes": 2, "gpus_per_node": 2} | changes])
    assert health(made).set_index("node")["slow"].to_dict() == {"n1": 0, "n2": slow}


@pytest.mark.parametrize(("names", "times", "found"), [
    (["n1"], None, []), (["n1"], [1.0], []), (["n1"], [1.0, None], []), (["n1"], [1.0, float("inf")], []),
    (["n1"], 1.0, []), ([], [1.0, 2.0], []), (None, [1.0, 2.0], []),
    (["n1", "n2"], [1.0, 3.0], [("n1", 0.5), ("n2", 1.5)]),
    (["n1", "n2"], [1.0, 1.0, 2.0], [("n1", 1.0), ("n1", 1.0), ("n2", 2.0)]),  # the last may have fewer ranks
])  # fmt: skip
def test_times_of_several_ranks_on_known_nodes_are_compared_with_their_median(names, times, found):
    row = {"run_id": "r", "attempt": 1, "node_names": names, "outcome": "ok", "model": "m", "nodes": 2}
    ranks = rank_times(pd.DataFrame([row | {"rank_step_time_median_s": times}]))
    assert list(zip(ranks["node"], ranks["ratio"], strict=True)) == found


def test_the_worst_node_comes_first_by_slow_ranks_then_ratio_then_faults():
    rows = [
        {"run_id": "a", "node_names": ["n1"], "rank_step_time_median_s": [1.0, 1.0, 1.3], "outcome": "ok"},
        {"run_id": "b", "node_names": ["n2"], "rank_step_time_median_s": [1.0, 1.0, 1.5], "outcome": "ok"},
        {
            "run_id": "c",
            "node_names": ["n3"],
            "rank_step_time_median_s": [1.0, 1.0, 1.0],
            "outcome": "ok",
            "slow_rank": 0,
        },
        {"run_id": "d", "node_names": ["n4"], "rank_step_time_median_s": None, "outcome": "xid_hardware"},
        {"run_id": "e", "node_names": ["n5"], "rank_step_time_median_s": None, "outcome": "oom_cuda"},
    ]
    table = health(pd.DataFrame(rows).assign(model="m", nodes=1, gpus_per_node=3, attempt=1))
    assert table["node"].tolist() == ["n3", "n2", "n1", "n4", "n5"]
    assert table["faults"].tolist() == [0, 0, 0, 1, 0], "too little memory is no fault of the node"


def test_both_tables_are_numbered_from_0_and_have_no_other_columns():
    ranks, table = rank_times(node_records()), health(node_records())
    assert ranks.index.tolist() == list(range(8))
    assert list(ranks) == list(RANK_COLUMNS)
    assert table.index.tolist() == [0, 1, 2]
    assert list(table) == list(HEALTH_COLUMNS)


def test_equal_nodes_are_in_the_order_of_their_names():
    rows = [{"run_id": name, "node_names": [name], "outcome": "ok"} for name in ("n3", "n1", "n2")]
    table = health(
        pd.DataFrame(rows).assign(model="m", nodes=1, gpus_per_node=1, attempt=1, rank_step_time_median_s=None)
    )
    assert table["node"].tolist() == ["n1", "n2", "n3"]
    assert table["ratio"].isna().all()
