"""A winner and what is one step away from it."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.derive.best import completed
from analysis.derive.neighbours import described, neighbours, stepped, summary
from analysis.metrics import METRICS
from sweep.physics.catalogue import MODELS
from tests.support.made_records import made_grid

RATE = METRICS["tokens_per_second_per_gpu"]


def table(*rows, **common):
    """Records of one cell of 8 GPUs; each row: layout and rate (None: failed)."""
    pattern = made_grid(1, 1, failing=False).iloc[[0]]
    shape = json.dumps(MODELS["1B"].as_dict())
    made = []
    for at, (layout, rate) in enumerate(rows):
        full = {"dp": 8, "tp": 1, "pp": 1, "micro_batch_size": 1, "zero": 0, **layout}
        full |= {
            "dp": 8 // full["tp"] // full["pp"],
            "grad_accum": full["tp"] * full["pp"] * 4 // full["micro_batch_size"],
        }
        values = {
            "run_id": f"r{at}",
            "nodes": 1,
            "gpus": 8,
            "gpu": "h100",
            "model": "1B",
            "shape_json": shape,
            **full,
            **common,
        }
        values |= {"tokens_per_second_per_gpu": rate, "outcome": "ok" if rate else "oom_cuda", "pp_schedule": "1f1b"}
        values |= {"params_json": "{}", "cp": 1, "ep": 1, "compile": False, "recompute": "none", "dtype": "bf16"}
        values |= {"step_times_s": None, "step_time_min_s": np.nan, "step_time_max_s": np.nan}
        made.append(pattern.assign(**{k: [v] for k, v in values.items()}))
    return completed(pd.concat(made, ignore_index=True))


def by_step(found):
    return {(row["axis"], row["step"]): row for row in found.to_dict("records")}


def test_a_measured_neighbour_has_its_ratio_to_the_winner():
    found = by_step(neighbours(table(({}, 100.0), ({"tp": 2}, 80.0), ({"zero": 1}, 95.0)), None, RATE))
    assert (found["tp", 1]["how"], found["tp", 1]["ratio"]) == ("measured", pytest.approx(0.8))
    assert (found["zero", 1]["value"], found["zero", 1]["ratio"]) == ("1", pytest.approx(0.95))


def test_a_lower_step_time_is_better():
    rows = table(({}, 1.0), ({"tp": 2}, 1.0)).assign(step_time_median_s=[2.0, 4.0])
    found = by_step(neighbours(rows, None, METRICS["step_time_median_s"]))
    assert found["tp", 1]["ratio"] == pytest.approx(0.5)


def test_a_run_that_differs_on_two_axes_is_no_neighbour():
    found = by_step(neighbours(table(({}, 100.0), ({"tp": 2, "zero": 1}, 80.0)), None, RATE))
    assert found["tp", 1]["how"] == found["zero", 1]["how"] == "predicted"


def test_the_next_value_counts_not_the_one_after():
    found = by_step(neighbours(table(({}, 100.0), ({"tp": 2}, 70.0), ({"tp": 4}, 90.0)), None, RATE))
    assert found["tp", 1]["value"] == "2"
    assert ("tp", -1) not in found, "there is no degree below 1"


def test_a_failed_neighbour_states_its_outcome():
    row = by_step(neighbours(table(({}, 100.0), ({"micro_batch_size": 2}, None)), None, RATE))["micro_batch_size", 1]
    assert (row["how"], row["reason"], described(row)) == ("failed", "oom_cuda", "failed: oom_cuda")


def test_a_winner_at_the_end_of_what_was_tried_is_at_the_edge_of_the_grid():
    rows = table(({"tp": 2}, 100.0), ({"tp": 1}, 80.0))
    found = by_step(neighbours(rows, None, RATE))
    assert found["tp", 1]["how"] == "edge", "tp 4 is possible on 8 GPUs"
    assert summary(neighbours(rows, None, RATE)).endswith("at the edge of the grid in tp")
    rows = table(({"tp": 8}, 100.0), ({"tp": 4}, 80.0))
    assert ("tp", 1) not in by_step(neighbours(rows, None, RATE)), "there are no more GPUs"
    rows = table(({"zero": 3}, 100.0), ({"zero": 1}, 80.0))
    assert ("zero", 1) not in by_step(neighbours(rows, None, RATE)), "there is no stage above 3"


def test_an_axis_without_order_has_its_other_values():
    rows = table(({}, 100.0), ({}, 60.0)).assign(dtype=["bf16", "fp32"])
    found = by_step(neighbours(rows, None, RATE))
    assert (found["dtype", 0]["value"], found["dtype", 0]["ratio"]) == ("fp32", pytest.approx(0.6))


def test_a_rejected_candidate_states_the_rule():
    plan = pd.DataFrame({
        "model": ["1B"], "nodes": [1], "status": ["rejected"], "reasons": ["memory: 90 GiB of 80"], "run_id": [None],
        "tp": [2], "pp": [1], "cp": [1], "ep": [1], "micro_batch_size": [1], "zero": [0], "recompute": ["none"],
        "dtype": ["bf16"], "compile": [False],
    })  # fmt: skip
    row = by_step(neighbours(table(({}, 100.0)), plan, RATE))["tp", 1]
    assert (row["how"], row["reason"]) == ("rejected", "memory")


def test_data_parallelism_and_accumulation_follow_a_step():
    winner = {"dp": 8, "tp": 1, "pp": 1, "cp": 1, "micro_batch_size": 2, "grad_accum": 4}
    found = stepped(winner, "tp", 4)
    assert (found["dp"], found["grad_accum"]) == (2, 16)
    assert stepped(winner, "micro_batch_size", 8)["grad_accum"] == 1
    assert stepped(winner, "micro_batch_size", 16) is None, "the batch has no such micro-batch"
    assert stepped(winner, "tp", 16) is None, "there are 8 GPUs"


def test_what_is_predicted_too_large_is_not_predicted_to_be_faster():
    large = json.dumps(MODELS["70B"].as_dict())
    rows = table(({"tp": 8}, 100.0), ({"tp": 4, "zero": 1}, 90.0)).assign(shape_json=large)
    row = by_step(neighbours(rows, None, RATE))["tp", -1]
    assert (row["how"], row["reason"]) == ("rejected", "memory")


def test_words_for_each_kind():
    row = {"how": "measured", "ratio": 0.88, "tie": False, "reason": ""}
    assert described(row) == "12 % slower"
    assert described({**row, "tie": True, "ratio": 0.999}) == "as fast, within noise"
    assert described({**row, "how": "predicted", "ratio": 1.03}) == "predicted 3 % faster"
    assert described({**row, "how": "edge"}) == "not in the sweep"


def test_nothing_is_said_of_an_axis_that_was_not_varied():
    assert neighbours(table(({}, 100.0)), None, RATE).empty
    assert summary(neighbours(table(({}, 100.0)), None, RATE)) == ""
