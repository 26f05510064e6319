"""The workload `collectives`: over sizes and groups, on two ranks."""

from __future__ import annotations

import pytest

from bench_workloads.collectives import OPERATIONS, Settings
from sweep.contract import Layout
from sweep.physics.measured import bus_bandwidth
from tests.support.ranks.harness import ForkServer, a_run

pytestmark = pytest.mark.parallel
MIN_RUNS = {"min_bytes": 1024, "max_bytes": 65536, "factor": 8, "repeats": 2}


def test_collectives_over_two_ranks(fork_server: ForkServer):
    run = a_run(Layout(dp=2), workload="collectives", iterations=3, params=MIN_RUNS)
    ranks = [rank.measurement for rank in fork_server.attempt(run)]
    rows = ranks[0]["extra"]["collectives"]
    assert {row["operation"] for row in rows} == set(OPERATIONS)
    assert {row["group"] for row in rows} == {"world"}, "one node: intra-node is the whole world"
    assert sorted({row["size_bytes"] for row in rows}) == Settings(**MIN_RUNS).sizes == [1024, 8192, 65536]
    for row in rows:
        assert row["ranks"] == 2
        assert 0 < row["time_min_s"] <= row["time_median_s"] <= row["time_max_s"]
        expected = bus_bandwidth(row["operation"], row["size_bytes"], row["time_median_s"], 2)
        assert row["bus_bytes_per_s"] == pytest.approx(expected)
    assert rows == ranks[1]["extra"]["collectives"], "times are the slowest rank's on every rank"
    assert len(ranks[0]["step_times_s"]) == 3


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("p2p", 1.0)],
)
def test_bus_bandwidth_is_that_of_nccl_tests(operation, factor):
    assert bus_bandwidth(operation, 8e9, 2.0, 8) == pytest.approx(4e9 * factor)
