"""A winner and what is one step away from it."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.derive.best import completed
from analysis.derive.neighbours import at_edge, neighbours, stepped
from analysis.metrics import METRICS
from sweep.physics.catalogue import MODELS
from tests.support.made_records import made_grid

RATE = METRICS["tokens_per_second_per_gpu"]


def table(*rows, **common):
    """Records of one cell of 8 GPUs; each row: layout and rate (None: failed)."""
    pattern = made_grid(1, 1, failing=False).iloc[0].to_dict()
    shape = json.dumps(MODELS["1B"].as_dict())
    made = []
    for at, (layout, rate) in enumerate(rows):
        full = {"dp": 8, "tp": 1, "pp": 1, "micro_batch_size": 1, "zero": 0, **layout}
        parallel = full["tp"] * full["pp"]
        full |= {"dp": 8 // parallel, "grad_accum": parallel * 4 // full["micro_batch_size"]}
        values = {"run_id": f"r{at}", "nodes": 1, "gpus": 8, "gpu": "h100", "model": "1B", "shape_json": shape}
        values |= {**full, **common}
        values |= {"tokens_per_second_per_gpu": rate, "outcome": "ok" if rate else "oom_cuda", "pp_schedule": "1f1b"}
        values |= {"params_json": "{}", "cp": 1, "ep": 1, "compile": False, "recompute": "none", "dtype": "bf16"}
        values |= {"step_times_s": None, "step_time_min_s": np.nan, "step_time_max_s": np.nan}
        made.append(pattern | values)
    return completed(pd.DataFrame(made))


def rejecting(*layouts, reasons):
    """A plan that rejects these layouts, for the same reasons."""
    cell = {"model": "1B", "nodes": 1, "status": "rejected", "reasons": reasons, "run_id": None}
    plain = {"tp": 1, "pp": 1, "cp": 1, "ep": 1, "micro_batch_size": 1, "zero": 0, "recompute": "none", "dtype": "bf16"}
    return pd.DataFrame([{**cell, **plain, "compile": False, **layout} for layout in layouts])


def said(records, plan=None, metric=RATE):
    """What is said of the one winner."""
    (text,) = neighbours(records, plan, metric).values()
    return text


@pytest.mark.parametrize(("others", "words"), [
    ([({"tp": 2}, 80.0)], "the one run one axis away (tp 2) is 20% behind"),
    ([({"tp": 2}, 80.0), ({"zero": 3}, 95.0)], "of 2 runs one axis away, the best (zero 3) is 5% behind"),
    ([({"tp": 2}, 80.0), ({"tp": 2}, 90.0)], "of 2 runs one axis away, the best (tp 2) is 10% behind"),
    ([({"tp": 2, "zero": 1}, 80.0)], ""),  # they differ on two axes
    ([({"micro_batch_size": 2}, None)], ""), ([], ""),
])  # fmt: skip
def test_the_nearest_of_those_that_differ_on_one_axis_is_named(others, words):
    assert said(table(({}, 100.0), *others)) == words


def test_a_switch_is_on_or_off():
    rows = table(({}, 100.0), ({}, 50.0)).assign(compile=[False, True])
    assert said(rows) == "the one run one axis away (compile on) is 50% behind"


def test_a_lower_step_time_is_better():
    rows = table(({}, 1.0), ({"zero": 3}, 1.0)).assign(step_time_median_s=[2.0, 4.0])
    assert said(rows, metric=METRICS["step_time_median_s"]) == "the one run one axis away (zero 3) is 50% behind"


def test_a_neighbour_with_the_same_rate_is_within_noise_and_one_that_was_stopped_is_none():
    rows = table(({}, 100.0), ({"zero": 3}, 99.0)).assign(
        step_time_median_s=1.0, step_time_min_s=0.95, step_time_max_s=1.05
    )
    assert said(rows) == "the one run one axis away (zero 3) is 1% behind, within noise"
    assert said(rows.assign(stopped=[None, "slow"])) == ""


def test_a_winner_at_the_end_of_what_the_sweep_has_is_at_the_edge_of_the_grid():
    rows = table(({"tp": 2}, 100.0), ({"tp": 1}, 80.0))
    assert said(rows).endswith("; at the edge of the grid in tp"), "tp 4 is possible on 8 GPUs"
    plan = rejecting({"tp": 4}, reasons=["memory: 90 GiB of 80"])
    assert "edge" not in said(rows, plan), "the grid has it"
    assert said(rows, plan.drop(columns="ep")).endswith("in tp"), "a plan without layouts says nothing"


WINNER = {
    "dp": 4, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "micro_batch_size": 2, "grad_accum": 4, "zero": 1,
    "recompute": "selective", "dtype": "bf16", "compile": True,
}  # fmt: skip


@pytest.mark.parametrize(("axis", "values", "edge"), [
    ("tp", {1, 2, 4, 8}, False), ("tp", {2, 8}, True), ("tp", {2}, False), ("tp", {1, 2}, True), ("pp", {1, 4}, False),
    ("zero", {0, 1}, True), ("zero", {1, 3}, False), ("micro_batch_size", {2, 8}, True),
    ("micro_batch_size", {1, 2}, True), ("recompute", {"selective", "full"}, False), ("dtype", {"bf16", "fp8"}, False),
    ("compile", {False, True}, False), ("tp", {1, 4}, False),
])  # fmt: skip
def test_an_edge_is_where_the_sweep_has_no_further_value_of_an_axis_of_numbers(axis, values, edge):
    """tp=2 of eight GPUs, micro-batches of 2 of 32 sequences: both could be doubled, and there is a half."""
    assert at_edge(WINNER, axis, values) is edge


@pytest.mark.parametrize(("changes", "axis", "values", "edge"), [
    ({"zero": 3}, "zero", {0, 3}, False), ({"zero": 2}, "zero", {1, 2}, True), ({"ep": 2}, "ep", {1, 2}, True),
    ({"tp": 8, "dp": 1}, "tp", {4, 8}, False), ({"tp": None}, "tp", {1, 2}, False),
    ({"micro_batch_size": 8, "grad_accum": 1}, "micro_batch_size", {4, 8}, False),
    ({"tp": float("nan")}, "tp", {1, 2}, False), ({"grad_accum": None}, "tp", {1, 2}, False),
])  # fmt: skip
def test_where_a_step_would_leave_the_gpus_or_the_batch_there_is_no_edge(changes, axis, values, edge):
    assert at_edge({**WINNER, **changes}, axis, values) is edge


@pytest.mark.parametrize(("axis", "value", "follows"), [
    ("tp", 1, (8, 2)), ("tp", 4, (2, 8)), ("tp", 8, (1, 16)), ("pp", 4, (1, 16)), ("cp", 2, (2, 8)), ("cp", 8, None),
    ("micro_batch_size", 1, (4, 8)), ("micro_batch_size", 8, (4, 1)), ("micro_batch_size", 16, None), ("tp", 3, None),
    ("zero", 3, (4, 4)), ("micro_batch_size", 3, None), ("dtype", "fp8", (4, 4)),
])  # fmt: skip
def test_gpus_and_batch_stay_the_same_after_a_step(axis, value, follows):
    found = stepped(WINNER, axis, value)
    assert (found and (found["dp"], found["grad_accum"])) == follows
    if found:
        gpus, batch = (
            [one["dp"] * one["tp"] * one["pp"] * one["cp"] for one in (WINNER, found)],
            [one["dp"] * one["micro_batch_size"] * one["grad_accum"] for one in (WINNER, found)],
        )
        assert gpus[0] == gpus[1]
        assert batch[0] == batch[1]
        assert found[axis] == value
