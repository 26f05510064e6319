"""Where the time of a job with failures goes."""

import pandas as pd
import pytest

from analysis.derive.job import day_of, with_failure_rate, with_job_notes, with_starts
from analysis.metrics import START
from sweep.contract import LAYOUT

JOB = {
    "checkpoint_stall_s": 5.0, "checkpoint_slowdown": 0.25, "checkpoint_durable_s": 55.0, "imports_s": 10.0,
    "start_s": 20.0, "first_iteration_s": 15.0, "restart_time": 60.0, "checkpoint_restore_s": 30.0,
    "failures_per_gpu_day": None, "graphs_compiled": None, "step_time_median_s": 1.0, "gpus": 16384,
}  # fmt: skip


def test_its_parts_are_all_of_it_and_each_is_as_long_as_what_it_is_of():
    """A checkpoint stalls for 5 s and is written for 50 s, in which a quarter more of a step costs 10 s."""
    (day,) = day_of(pd.DataFrame([JOB])).to_dict("records")
    assert sum(day.values()) == pytest.approx(1)
    assert day["steps slowed by writing"] == pytest.approx(2 * day["checkpoint stalls"])
    assert day["waiting for the restart"] == pytest.approx(2 * day["restore"])
    assert day["cold start"] == pytest.approx(1.5 * day["restore"])
    at_once = JOB | dict.fromkeys((*START, "restart_time", "checkpoint_restore_s"), 0.0)
    assert day_of(pd.DataFrame([at_once])).to_numpy().sum() == pytest.approx(1)


def test_simulated_attempts_neither_fail_nor_spend_days():
    real = {"sweep_name": "s", "total_s": 86_400.0, "gpus": 8, "outcome": "node_fail", "failures_per_gpu_day": None}
    rows = pd.DataFrame([*[real | {"simulated": False}] * 50, real | {"simulated": True}])
    alone = with_failure_rate(rows[:50]).to_dict("records")
    assert with_failure_rate(rows).to_dict("records")[:50] == alone


def test_a_cached_start_is_the_shortest_of_the_layout_whatever_no_run_states():
    run = {"model": "8B", "nodes": 1, **dict.fromkeys(LAYOUT), **dict.fromkeys(START, 1.0), "step_time_median_s": 1.0}
    rows = pd.DataFrame([run | {"graphs_compiled": 0}, run | {"graphs_compiled": 5, "imports_s": 9.0}])
    started = with_starts(rows, pd.Series([0, 0]))
    assert started["cached_start_s"].tolist() == [len(START)] * 2
    assert started["imports_s"].tolist() == [9.0] * 2


def test_a_note_states_a_jobs_interval_its_time_and_its_start():
    known = {
        "failures_per_gpu_day": 0.001,
        "failures_seen": 5,
        "value": 1.0,
        "low": 1.0,
        "high": 1.0,
        "cached_start_s": 7.0,
    }
    best = pd.DataFrame([JOB | known | {"model": "m", "nodes": 2048, "run_id": "r", "notes": None, "imports_s": None}])
    ((note,),) = with_job_notes(best, best)["notes"]
    assert ": a checkpoint each 388 steps (6.47 min); 89.6% of the time trains, " in note
    assert "a cold start takes 35 s (imports 0, ranks and model 20, first step 15), 7 s where all compiled code" in note
    ((note,),) = with_job_notes(best.assign(cached_start_s=None), best)["notes"]
    assert note.endswith("first step 15)"), "nothing is known of a cached one"
