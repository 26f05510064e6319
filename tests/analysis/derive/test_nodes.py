"""The health of nodes, and times of their ranks."""

import pandas as pd
import pytest

from analysis.derive.nodes import health, rank_times


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
