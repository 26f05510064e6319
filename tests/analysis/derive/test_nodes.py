"""The health of nodes."""

import pandas as pd
import pytest

from analysis.derive.nodes import HEALTH_COLUMNS, health


def node_records():
    rows = [
        {"run_id": "a", "node_names": ["n2", "n1"], "slow_rank": 1, "outcome": "ok"},
        {"run_id": "b", "node_names": ["n1", "n3"], "slow_rank": None, "outcome": "ok"},
        {"run_id": "c", "node_names": ["n3"], "slow_rank": None, "outcome": "hang"},
        {"run_id": "d", "node_names": ["n4"], "slow_rank": None, "outcome": "xid_hardware"},
        {"run_id": "e", "node_names": ["n5"], "slow_rank": None, "outcome": "oom_cuda"},
    ]
    return pd.DataFrame(rows).assign(model="m", nodes=2, gpus_per_node=2, attempt=1)


def test_each_node_has_its_attempts_faults_and_slow_ranks():
    table = health(node_records())
    assert list(table) == HEALTH_COLUMNS
    expected = [["n1", 2, 0, 0], ["n2", 1, 0, 1], ["n3", 2, 1, 0], ["n4", 1, 1, 0], ["n5", 1, 0, 0]]
    assert table.to_numpy().tolist() == expected, "too little memory is no fault of the node"


@pytest.mark.parametrize("records", [node_records().drop(columns="node_names"), node_records().assign(node_names=None)])
def test_where_no_node_is_known_there_is_none(records):
    assert list(health(records)) == HEALTH_COLUMNS
    assert health(records).empty
    assert health(node_records().drop(columns="slow_rank"))["slow"].tolist() == [0] * 5


@pytest.mark.parametrize(("changes", "slow"), [
    ({}, [0, 1]), ({"slow_rank": 2}, [0, 1]), ({"slow_rank": 1}, [1, 0]),
    ({"gpus_per_node": 1, "slow_rank": 1}, [0, 1]), ({"pp": 2}, [0, 0]), ({"ep": 2}, [0, 0]),
    ({"slow_rank": None}, [0, 0]), ({"slow_rank": 4}, [0, 0]),
    ({"gpus_per_node": 0}, [0, 0]), ({"gpus_per_node": None}, [0, 0]), ({"slow_rank": -1}, [0, 0]),
])  # fmt: skip
def test_a_slow_rank_accuses_its_node_where_all_ranks_have_equal_work(changes, slow):
    """Ranks are numbered node by node: rank 3 of two nodes with two GPUs is on the second."""
    row = {"run_id": "r", "attempt": 1, "node_names": ["n1", "n2"], "slow_rank": 3, "outcome": "ok", "pp": 1, "ep": 1}
    made = pd.DataFrame([row | {"model": "m", "nodes": 2, "gpus_per_node": 2} | changes])
    assert health(made)["slow"].tolist() == slow
