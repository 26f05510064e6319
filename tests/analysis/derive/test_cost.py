"""GPU-hours by outcome."""

import numpy as np
import pandas as pd
import pytest

from analysis.derive.time import by_outcome, gpu_hours, unit_of


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


def test_a_time_that_runs_backwards_is_unknown_and_not_subtracted():
    """A clock that was set back between an attempt's start and end."""
    assert gpu_hours(pd.DataFrame({"outcome": ["ok"], "total_s": [-1.0], "gpus": [1]})).isna().all()
    made = pd.DataFrame({"outcome": ["ok", "ok"], "total_s": [-7200.0, 3600.0], "gpus": [8, 8]})
    assert gpu_hours(made).tolist() == pytest.approx([np.nan, 8.0], nan_ok=True)
    assert by_outcome(made)["gpu_hours"].tolist() == pytest.approx([8.0])


def test_an_attempt_that_ended_at_once_cost_nothing_and_is_no_unknown_time():
    made = pd.DataFrame({"outcome": ["ok", "hang"], "total_s": [0.0, None], "gpus": [8, 8]})
    assert gpu_hours(made).tolist() == pytest.approx([0.0, np.nan], nan_ok=True)
    table = by_outcome(made).set_index("outcome")
    assert table["timed"].to_dict() == {"ok": 1, "hang": 0}


def test_without_times_every_cost_is_unknown_and_without_gpus_nodes_count():
    made = pd.DataFrame({"outcome": ["ok"], "nodes": [2]})
    assert gpu_hours(made).isna().all()
    assert gpu_hours(made.assign(total_s=3600.0)).tolist() == [2.0]


def test_of_failures_the_most_expensive_comes_first_and_of_equal_ones_the_most_frequent():
    made = pd.DataFrame(
        {"outcome": ["hang", "lost", "lost", "ok"], "total_s": [7200.0, 3600.0, 3600.0, 1.0], "gpus": 1}
    )
    assert by_outcome(made)["outcome"].tolist() == ["ok", "lost", "hang"]
    assert by_outcome(made.assign(total_s=[9000.0, 3600.0, 3600.0, 1.0]))["outcome"].tolist() == ["ok", "hang", "lost"]


def test_the_table_has_a_row_of_five_numbers_per_outcome_from_0_on():
    made = pd.DataFrame({"outcome": ["hang", "ok", None], "total_s": [3600.0, 1800.0, 1800.0], "gpus": 2})
    table = by_outcome(made)
    assert table.to_dict("records") == [
        {"outcome": "ok", "attempts": 2, "gpu_hours": 2.0, "timed": 2},
        {"outcome": "hang", "attempts": 1, "gpu_hours": 2.0, "timed": 1},
    ]
    assert table.index.tolist() == [0, 1]


def test_less_than_an_hour_is_stated_in_minutes_of_ranks_where_all_ran_on_cpus():
    on_gpus, on_cpus = (pd.DataFrame({"gpu": [kind, None]}) for kind in ("h100", "cpu"))
    assert [unit_of(on_gpus, hours) for hours in (0.99, 1.0)] == [("GPU-minutes", 60.0), ("GPU-hours", 1.0)]
    assert [unit_of(on_cpus, hours) for hours in (0.99, 1.0)] == [("rank-minutes", 60.0), ("rank-hours", 1.0)]
