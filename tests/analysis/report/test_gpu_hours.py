"""What attempts cost: the time of their GPUs."""

import pandas as pd
import pytest

from analysis.report.attempts import time_spent


def spent(**columns):
    return time_spent(pd.DataFrame(columns))


def test_a_time_that_runs_backwards_is_unknown_and_not_subtracted():
    """A clock that was set back between an attempt's start and end."""
    assert spent(total_s=[-1.0], gpus=[1]) is None
    assert spent(total_s=[-7200.0, 3600.0], gpus=[8, 8]) == ("GPU-hours", pytest.approx(8.0))


def test_an_attempt_that_ended_at_once_cost_nothing_and_is_no_unknown_time():
    assert spent(total_s=[0.0, None], gpus=[8, 8]) == ("GPU-minutes", 0.0)


def test_without_times_the_cost_is_unknown_and_without_gpus_nodes_count():
    assert spent(nodes=[2]) is None
    assert spent(nodes=[2], total_s=[3600.0]) == ("GPU-hours", pytest.approx(2.0))


def test_below_an_hour_it_is_minutes_and_where_all_ran_on_cpus_of_ranks():
    assert [spent(total_s=[3600.0 * h], gpus=[1])[0] for h in (0.99, 1.0)] == ["GPU-minutes", "GPU-hours"]
    assert spent(total_s=[1800.0, 1800.0], gpus=[1, 1], gpu=["cpu", "cpu"]) == ("rank-hours", pytest.approx(1.0))
    assert spent(total_s=[1800.0, 1800.0], gpus=[1, 1], gpu=["cpu", "h100"]) == ("GPU-hours", pytest.approx(1.0))
