"""A winner and what is one step away from it."""

import json

import numpy as np
import pandas as pd
import pytest

from analysis.derive.best import completed
from analysis.derive.neighbours import described, neighbours, stepped, steps_of, summary
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


def by_step(found):
    (rows,) = found.values()
    return {(row["axis"], row["step"]): row for row in rows}


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
    assert found["tp", 1]["how"] == found["zero", 1]["how"] == "unknown"


def test_a_failed_neighbour_states_its_outcome():
    row = by_step(neighbours(table(({}, 100.0), ({"micro_batch_size": 2}, None)), None, RATE))["micro_batch_size", 1]
    assert (row["how"], row["reason"], described(row)) == ("failed", "oom_cuda", "failed: oom_cuda")


def test_a_neighbour_that_was_cancelled_is_not_known():
    rows = table(({}, 100.0), ({"micro_batch_size": 2}, None)).assign(outcome=["ok", "cancelled"])
    row = by_step(neighbours(rows, None, RATE))["micro_batch_size", 1]
    assert (row["how"], row["value"]) == ("unknown", "2"), "no measurement, no failure, and no edge of the grid"


def test_a_winner_at_the_end_of_what_was_tried_is_at_the_edge_of_the_grid():
    rows = table(({"tp": 2}, 100.0), ({"tp": 1}, 80.0))
    found = by_step(neighbours(rows, None, RATE))
    assert found["tp", 1]["how"] == "edge", "tp 4 is possible on 8 GPUs"
    assert summary(neighbours(rows, None, RATE)["1B", 1]).endswith("at the edge of the grid in tp")


def test_a_rejected_candidate_states_the_rule():
    plan = rejecting({"tp": 2}, reasons=["memory: 90 GiB of 80"])
    row = by_step(neighbours(table(({}, 100.0)), plan, RATE))["tp", 1]
    assert (row["how"], row["reason"]) == ("rejected", "memory")


def test_an_axis_that_was_not_varied_has_no_neighbours():
    assert neighbours(table(({}, 100.0)), None, RATE) == {("1B", 1): []}
    assert summary([]) == ""


WINNER = {
    "dp": 4, "tp": 2, "pp": 1, "cp": 1, "ep": 1, "micro_batch_size": 2, "grad_accum": 4, "zero": 1,
    "recompute": "selective", "dtype": "bf16", "compile": True,
}  # fmt: skip


@pytest.mark.parametrize(("axis", "values", "steps"), [
    ("tp", {1, 2, 4, 8}, [(-1, 1), (1, 4)]), ("tp", {2, 8}, [(-1, None), (1, 8)]), ("tp", {2}, []), ("tp", set(), []),
    ("tp", {1, 2}, [(-1, 1), (1, None)]), ("pp", {1, 4}, [(1, 4)]), ("pp", {4}, [(1, 4)]),
    ("zero", {0, 1}, [(-1, 0), (1, None)]), ("zero", {1, 3}, [(1, 3)]), ("zero", {0, 1, 2, 3}, [(-1, 0), (1, 2)]),
    ("micro_batch_size", {2, 8}, [(-1, None), (1, 8)]), ("micro_batch_size", {1, 2}, [(-1, 1), (1, None)]),
    ("recompute", {"none", "selective", "full"}, [(-1, "none"), (1, "full")]),
    ("recompute", {"selective", "full"}, [(1, "full")]), ("recompute", {"none"}, [(-1, "none")]),
    ("dtype", {"bf16", "fp8", "fp32"}, [(0, "fp32"), (0, "fp8")]), ("compile", {False, True}, [(0, False)]),
])  # fmt: skip
def test_one_step_is_to_the_next_value_of_the_sweep_or_beyond_its_edge(axis, values, steps):
    """tp=2 of eight GPUs, micro-batches of 2 of 32 sequences: both could be doubled, and there is a half."""
    assert steps_of(WINNER, axis, values) == steps


@pytest.mark.parametrize(("changes", "axis", "values", "steps"), [
    ({"zero": 3}, "zero", {0, 3}, [(-1, 0)]), ({"zero": 0}, "zero", {0, 3}, [(1, 3)]),
    ({"zero": 2}, "zero", {1, 2}, [(-1, 1), (1, None)]),
    ({"tp": 8, "dp": 1}, "tp", {4, 8}, [(-1, 4)]), ({"micro_batch_size": 8, "grad_accum": 1}, "micro_batch_size",
     {4, 8}, [(-1, 4)]), ({"tp": None}, "tp", {1, 2}, []), ({"tp": float("nan")}, "tp", {1, 2}, []),
    ({"grad_accum": None}, "tp", {1, 2}, [(-1, 1)]),
    ({"recompute": "full"}, "recompute", {"none", "full"}, [(-1, "none")]),
    ({"recompute": "offload"}, "recompute", {"none", "full"}, [(0, "full"), (0, "none")]),
    ({"ep": 2}, "ep", {1, 2}, [(-1, 1), (1, None)]),
])  # fmt: skip
def test_where_a_step_would_leave_the_gpus_or_the_batch_there_is_none(changes, axis, values, steps):
    assert steps_of({**WINNER, **changes}, axis, values) == steps


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


@pytest.mark.parametrize(("row", "words"), [
    ({"how": "measured", "ratio": 1.12}, "12 % faster"), ({"how": "measured", "ratio": 0.996}, "as fast"),
    ({"how": "measured", "ratio": 0.9949}, "1 % slower"), ({"how": "measured", "ratio": 1.0051}, "1 % faster"),
    ({"how": "measured", "ratio": 0.5, "tie": True}, "50 % slower, within noise"),
    ({"how": "measured", "ratio": 0.2}, "80 % slower"),
    ({"how": "failed", "reason": "hang"}, "failed: hang"),
    ({"how": "rejected", "reason": "memory"}, "cannot run: memory"), ({"how": "edge"}, "not in the sweep"),
    ({"how": "unknown"}, "not measured"),
])  # fmt: skip
def test_a_neighbour_in_words(row, words):
    assert described({"tie": False, "reason": "", "ratio": np.nan, **row}) == words


def one_winners(*rows):
    plain = {"step": 1, "value": "2", "ratio": np.nan, "how": "edge", "reason": "", "tie": False}
    return [{**plain, **row} for row in rows]


def test_a_winners_neighbours_in_a_sentence():
    near = {"axis": "tp", "how": "measured", "ratio": 0.88}
    assert summary(one_winners(near)) == "the one measured neighbour (tp 2) is 12% behind"
    nearer = {"axis": "zero", "value": "3", "how": "measured", "ratio": 0.99, "tie": True}
    both = "of 2 measured neighbours the nearest (zero 3) is 1% behind, within noise"
    assert summary(one_winners(near, nearer)) == both
    untried = {"axis": "pp", "value": "4", "how": "unknown"}
    assert summary(one_winners(untried)) == ""
    edges = [{"axis": "tp", "step": -1}, {"axis": "tp"}, {"axis": "zero"}]
    assert summary(one_winners(near, untried, *edges)) == (
        "the one measured neighbour (tp 2) is 12% behind; at the edge of the grid in tp, zero"
    )


def test_what_is_measured_counts_before_a_failure_and_a_failure_before_a_plan():
    plan = rejecting({"tp": 2}, {"zero": 1}, reasons=["own: x"])
    rows = table(({}, 100.0), ({"tp": 2}, None), ({"tp": 2, "micro_batch_size": 2}, 50.0))
    found = by_step(neighbours(rows, plan, RATE))
    assert (found["tp", 1]["how"], found["tp", 1]["reason"]) == ("failed", "oom_cuda")
    assert found["zero", 1]["how"] == "rejected"
    assert not found["tp", 1]["tie"]
    again = table(({}, 100.0), ({"tp": 2}, None), ({"tp": 2}, 60.0), ({"tp": 2, "compile": False}, 70.0))
    row = by_step(neighbours(again, plan, RATE))["tp", 1]
    assert (row["how"], row["ratio"]) == ("measured", pytest.approx(0.7)), "the better of two"


def test_a_neighbour_with_the_same_rate_is_within_noise():
    rows = table(({}, 100.0), ({"tp": 2}, 99.0), ({"zero": 1}, 50.0)).assign(
        step_time_median_s=1.0, step_time_min_s=0.95, step_time_max_s=1.05
    )
    found = by_step(neighbours(rows, None, RATE))
    assert found["tp", 1]["tie"]
    assert not found["zero", 1]["tie"]


def test_of_several_failures_the_last_is_named():
    rows = table(({}, 100.0), ({"tp": 2}, None), ({"tp": 2}, None))
    rows["outcome"] = ["ok", "hang", "oom_cuda"]
    assert by_step(neighbours(rows, None, RATE))["tp", 1]["reason"] == "oom_cuda"


def test_the_first_reason_of_a_rejection_is_named_and_a_plan_without_layouts_names_none():
    plan = rejecting({"tp": 2}, reasons=["memory: 90 GiB", "own: x"])
    rows = table(({}, 100.0), ({"zero": 1}, 90.0))
    assert by_step(neighbours(rows, plan, RATE))["tp", 1]["how"] == "rejected"
    assert ("tp", 1) not in by_step(neighbours(rows, plan.drop(columns="ep"), RATE))
    runs = pd.concat([plan, plan.assign(status="run", run_id="r9")])
    assert by_step(neighbours(rows, runs, RATE))["tp", 1]["how"] == "unknown", "one of two is to run"
