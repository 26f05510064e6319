"""What attempts cost: the time of their GPUs."""

import pandas as pd
import pytest

from analysis.report.attempts import time_spent


@pytest.mark.parametrize(("columns", "cost"), [
    # A clock that was set back between an attempt's start and end: its time is unknown, and not subtracted
    ({"total_s": [-1.0], "gpus": [1]}, None),
    ({"total_s": [-7200.0, 3600.0], "gpus": [8, 8]}, ("GPU-hours", 8.0)),
    # One that ended at once cost nothing
    ({"total_s": [0.0, None], "gpus": [8, 8]}, ("GPU-minutes", 0.0)),
    ({"nodes": [2]}, None), ({"nodes": [2], "total_s": [3600.0]}, ("GPU-hours", 2.0)),
    ({"total_s": [3564.0], "gpus": [1]}, ("GPU-minutes", 59.4)),
    ({"total_s": [3600.0], "gpus": [1]}, ("GPU-hours", 1.0)),
    ({"total_s": [1800.0, 1800.0], "gpus": [1, 1], "gpu": ["cpu", "cpu"]}, ("rank-hours", 1.0)),
    ({"total_s": [1800.0, 1800.0], "gpus": [1, 1], "gpu": ["cpu", "h100"]}, ("GPU-hours", 1.0)),
])  # fmt: skip
def test_the_time_of_attempts_on_their_gpus_is_in_hours_or_minutes_of_gpus_nodes_or_ranks(columns, cost):
    assert time_spent(pd.DataFrame(columns)) == (cost and (cost[0], pytest.approx(cost[1])))
