"""Which axes vary, and the metric that compares models."""

import pandas as pd
import pytest

from analysis.derive.axes import comparable_metric, varied_axes
from analysis.derive.best import completed
from analysis.metrics import METRICS


@pytest.mark.parametrize(("known", "wanted"), [
    ({"mfu": 10}, "mfu"), ({"mfu": 9}, "mfu"), ({"mfu": 8}, "tokens_per_second_per_gpu"),
    ({"mfu": 8, "reported_mfu": 9}, "reported_mfu"), ({"tflops_per_gpu": 10}, "tflops_per_gpu"),
    ({}, "tokens_per_second_per_gpu"),
])  # fmt: skip
def test_models_are_compared_by_the_share_of_the_peak_where_nine_tenths_have_it(known, wanted):
    made = pd.DataFrame({"model": "m", "nodes": 1, "run_id": list("abcdefghij"), "tokens_per_second_per_gpu": 5.0})
    for name in ("mfu", "reported_mfu", "tflops_per_gpu"):
        made[name] = [0.4 if row < known.get(name, 0) else None for row in range(10)]
    made = completed(made.assign(outcome="ok", tp=range(10)))
    assert comparable_metric(made) is METRICS[wanted]
    assert comparable_metric(made.assign(outcome="unknown")) is None


@pytest.mark.parametrize(
    ("dtypes", "wanted"), [(("fp8_rowwise", "mxfp8"), "mfu"), (("bf16", "mxfp8"), "tflops_per_gpu")]
)
def test_number_formats_of_other_peaks_are_not_compared_by_their_share_of_it(dtypes, wanted):
    made = pd.DataFrame({"model": "m", "nodes": 1, "run_id": ["a", "b"], "dtype": dtypes, "mfu": [0.5, 0.3]})
    made = made.assign(tokens_per_second_per_gpu=5.0, tflops_per_gpu=50.0, reported_mfu=0.5, outcome="ok")
    assert comparable_metric(completed(made)) is METRICS[wanted]


def test_axes_that_vary_are_those_of_several_values():
    rows = pd.DataFrame({"tp": [1, 2, None], "pp": [1, 1, 1], "cp": [None, None, 2], "zero": [0, 1, 2]})
    assert varied_axes(rows) == ["tp", "zero"]
