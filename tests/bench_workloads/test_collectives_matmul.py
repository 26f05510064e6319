"""The small workloads: collectives over sizes and groups, matrix products of a model."""

from __future__ import annotations

import dataclasses

import pytest

from bench_workloads.collectives import OPERATIONS, Settings
from bench_workloads.matmul import Settings as MatmulSettings
from bench_workloads.matmul import products, swiglu_widths
from sweep.contract import Layout
from sweep.physics.measured import bus_bandwidth
from tests.support.ranks.harness import DENSE, ForkServer, a_run

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


def test_matmul_on_one_rank(fork_server: ForkServer):
    params = {"squares": "64,128", "width_steps": 2, "repeats": 2}
    run = a_run(Layout(micro_batch_size=2), workload="matmul", shape=DENSE, params=params)
    extra = fork_server.attempt(run)[0].measurement["extra"]
    rows = extra["matmul"]
    assert all(row["tflops"] > 0 for row in rows)
    assert [row["m"] for row in rows if row["product"] == "square"] == [64, 128]
    widths = {row["n"]: row["tflops"] for row in rows if row["product"] == "swiglu_width"}
    assert widths[extra["best_swiglu_width"]] == max(widths.values())


def test_products_of_a_layer_are_what_the_model_multiplies():
    """One forward of a layer and the logits: 2 FLOPs per weight and token."""
    from sweep.physics.shapes import ModelShape, matmul_parameters

    run = a_run(Layout(micro_batch_size=3), workload="matmul", shape=DENSE | {"num_layers": 1})
    found = {p.name: p for p in products(run, MatmulSettings(squares="", width_steps=0))}
    flops = sum(p.flops for p in found.values()) + found["mlp_up"].flops  # gate and up have the same shape
    assert flops == 2 * matmul_parameters(ModelShape(**run.shape)) * 3 * 32


def test_swiglu_widths_surround_eight_thirds():
    widths = swiglu_widths(4096, MatmulSettings(width_steps=2, width_step=64))
    assert widths == [10816, 10880, 10922, 10944, 11008]


@pytest.mark.parametrize("workload", ["collectives", "matmul"])
def test_unknown_parameters_are_refused(workload):
    kind = Settings if workload == "collectives" else MatmulSettings
    with pytest.raises(ValueError, match="no parameter colour"):
        kind.of(a_run(Layout(), workload=workload, params={"colour": 1}))
    assert dataclasses.is_dataclass(kind)
