"""Scaling, axes, Pareto, cost, node health, predictions: derived numbers against plain arithmetic."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.derive.axes import sensitivity
from analysis.derive.best import completed
from analysis.derive.cost import by_outcome
from analysis.derive.nodes import health, rank_times
from analysis.derive.pareto import front
from analysis.derive.predicted import columns_of, errors, predictions
from analysis.derive.scaling import amdahl, bubble, scaling
from analysis.metrics import METRICS
from sweep.physics import memory
from sweep.physics.catalogue import MODELS
from sweep.physics.profiles import PROFILES
from tests.support.made_records import made_grid, playbook_records

RATE = METRICS["tokens_per_second_per_gpu"]


def test_efficiency_is_relative_to_the_fewest_nodes():
    table = scaling(made_grid(2, 4, failing=False))
    for _, rows in table.groupby("model"):
        assert rows["efficiency"].tolist() == pytest.approx([1 / (1 + 0.08 * n) for n in range(4)])
        assert rows["tokens_per_second"].tolist() == pytest.approx(
            (rows["tokens_per_second_per_gpu"] * 8 * rows["nodes"]).tolist()
        )


def test_amdahls_law_is_found_again_and_needs_three_points():
    gpus = np.array([8, 16, 32, 64])
    table = pd.DataFrame({"model": "m", "gpus": gpus, "tokens_per_second": 1 / (1e-6 + 1e-3 / gpus)})
    fit = amdahl(table)["m"]
    assert fit.serial_share == pytest.approx(1e-6 / (1e-6 + 1e-3))
    assert amdahl(table.head(2)) == {}


def piped(slope):
    layouts = [(pp, gas) for pp in (1, 2, 4) for gas in (4, 8, 32)]
    rows = [{"pp": pp, "grad_accum": gas, "value": 100 * (1 + (pp - 1) / gas) ** -slope} for pp, gas in layouts]
    table = pd.DataFrame(rows).assign(model="m", nodes=1, tp=1, cp=1, ep=1, zero=1, micro_batch_size=1, outcome="ok")
    return table.assign(run_id=[f"r{at}" for at in range(len(rows))], tokens_per_second_per_gpu=table["value"])


@pytest.mark.parametrize("slope", [1.0, 1.7])
def test_the_bubbles_slope_is_found_again(slope):
    found = bubble(piped(slope).drop(columns="value"))
    assert found["slope"] == pytest.approx(slope)
    assert found["explained"] == pytest.approx(1)
    assert bubble(piped(slope).query("pp == 1").drop(columns="value")) is None


def test_the_playbooks_pipelines_pay_more_than_the_ideal_bubble():
    assert bubble(playbook_records())["slope"] > 0.5


def test_fixing_an_axis_costs_what_the_best_without_it_loses():
    made = pd.DataFrame(
        [
            ("m", 1, 1, 0, 100.0),
            ("m", 1, 2, 0, 90.0),
            ("m", 1, 2, 1, 80.0),
            ("m", 2, 1, 0, 50.0),
            ("m", 2, 2, 0, 100.0),
        ],
        columns=["model", "nodes", "tp", "zero", "tokens_per_second_per_gpu"],
    ).assign(outcome="ok", run_id=list("abcde"))
    table = sensitivity(made, RATE).set_index(["axis", "value"])
    assert table.loc[("tp", "1"), ["median", "worst", "wins", "cells"]].tolist() == [0.25, 0.5, 1, 2]
    assert table.loc[("tp", "2"), ["median", "worst"]].tolist() == pytest.approx([0.05, 0.1])
    assert table.loc[("zero", "1"), ["median", "missing"]].tolist() == pytest.approx([0.2, 1])


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=20), st.booleans())
def test_the_front_is_what_a_plain_loop_finds(points, higher):
    peak, value = (pd.Series([float(p[i]) for p in points]) for i in (0, 1))
    found = {(peak[i], value[i]) for i in front(peak, value, higher=higher)}

    def beats(a, b):
        gain = a[1] >= b[1] if higher else a[1] <= b[1]
        return a != b and a[0] <= b[0] and gain

    assert found == {p for p in points if not any(beats(q, p) for q in points)}


def test_what_outcomes_cost():
    made = pd.DataFrame(
        {
            "outcome": ["ok", "ok", "hang", "oom_cuda", "ok"],
            "total_s": [360.0, 360.0, 7200.0, None, 36.0],
            "gpus": [10, 10, 2, 8, 10],
            "surplus": [False, False, False, False, True],
        }
    )
    table = by_outcome(made).set_index("outcome")
    assert list(table.index) == ["ok", "hang", "surplus", "oom_cuda"]
    assert table["gpu_hours"].tolist() == pytest.approx([2.0, 4.0, 0.1, np.nan], nan_ok=True)
    assert table["attempts"].tolist() == [2, 1, 1, 1]


def node_records():
    rows = [
        {"run_id": "a", "node_names": ["n1", "n2"], "rank_step_time_median_s": [1.0, 1.0, 1.0, 1.5], "slow_rank": 3},
        {"run_id": "b", "node_names": ["n1", "n3"], "rank_step_time_median_s": [1.0, 1.0, 1.0, 1.0], "slow_rank": None},
        {"run_id": "c", "node_names": ["n3"], "rank_step_time_median_s": None, "slow_rank": None, "outcome": "hang"},
    ]
    table = pd.DataFrame(rows).assign(model="m", nodes=2, gpus_per_node=2, attempt=1)
    return table.assign(outcome=table["outcome"].fillna("ok"))


def test_a_slow_rank_points_at_its_node():
    ranks = rank_times(node_records())
    assert ranks.loc[ranks["ratio"] > 1.2, ["node", "rank"]].to_numpy().tolist() == [["n2", 3]]
    table = health(node_records()).set_index("node")
    assert table.index[0] == "n2"
    assert table.loc["n2", ["attempts", "ok", "slow"]].tolist() == [1, 1, 1]
    assert table.loc["n2", "ratio"] == pytest.approx(1.5)
    assert table.loc["n3", ["attempts", "ok", "faults"]].tolist() == [2, 1, 1]
    assert health(node_records()[["run_id", "model", "nodes"]]).empty


def physical(**changes):
    import dataclasses
    import json

    shape = json.dumps(dataclasses.asdict(MODELS["1B"]))
    made = made_grid(1, 2, failing=False).assign(
        shape_json=shape, params_json="{}", pp_schedule="1f1b", cp=1, ep=1, compile=False, peak_memory_bytes=2**35
    )
    return completed(made.assign(**changes))


def test_predictions_from_the_record_are_those_of_the_physics():
    rows = predictions(physical(), None)
    first = rows.iloc[0]
    columns = columns_of(rows)
    assert first["predicted_peak_bytes"] == pytest.approx(memory.peak_bytes(columns, PROFILES["ours"])[0])
    assert (rows["predicted_step_s"] > 0).all()
    error = errors(rows, "memory")
    assert error.iloc[0] == pytest.approx(first["predicted_peak_bytes"] / 2**35 - 1)


@pytest.mark.parametrize("changes", [{"workload": "somebody's"}, {"shape_json": None}, {"simulated": True}])
def test_nothing_is_predicted_where_nothing_is_known(changes):
    assert errors(predictions(physical(**changes), None), "memory").empty


def test_no_seconds_are_predicted_for_unknown_hardware():
    rows = predictions(physical(gpu="cpu"), None)
    assert errors(rows, "time").empty
    assert len(errors(rows, "memory"))
