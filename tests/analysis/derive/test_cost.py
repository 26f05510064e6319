"""GPU-hours by outcome."""

import numpy as np
import pandas as pd
import pytest

from analysis.derive.cost import by_outcome, gpu_hours


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
    made = pd.DataFrame({"outcome": ["ok", "ok"], "total_s": [-7200.0, 3600.0], "gpus": [8, 8]})
    assert gpu_hours(made).tolist() == pytest.approx([np.nan, 8.0], nan_ok=True)
    assert by_outcome(made)["gpu_hours"].tolist() == pytest.approx([8.0])
