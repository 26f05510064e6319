"""What axes do: pipeline bubbles, and the metric that compares models."""

import numpy as np
import pandas as pd
import pytest

from analysis.derive.axes import comparable_metric, varied_axes
from analysis.derive.best import completed
from analysis.derive.scaling import bubble
from analysis.metrics import METRICS
from tests.support.made_records import playbook_records


def piped(slope):
    layouts = [(pp, gas) for pp in (1, 2, 4) for gas in (4, 8, 32)]
    rows = [{"pp": pp, "grad_accum": gas, "value": 100 * (1 + (pp - 1) / gas) ** -slope} for pp, gas in layouts]
    table = pd.DataFrame(rows).assign(model="m", nodes=1, tp=1, cp=1, ep=1, zero=1, micro_batch_size=1, outcome="ok")
    return table.assign(run_id=[f"r{at}" for at in range(len(rows))], tokens_per_second_per_gpu=table["value"])


@pytest.mark.parametrize("slope", [1.0, 1.7])
def test_the_bubbles_slope_is_recovered(slope):
    found = bubble(piped(slope).drop(columns="value"))
    assert found["slope"] == pytest.approx(slope)
    assert found["explained"] == pytest.approx(1)
    assert bubble(piped(slope).query("pp == 1").drop(columns="value")) is None


def test_the_playbooks_pipelines_cost_more_than_the_ideal_bubble():
    assert bubble(playbook_records())["slope"] > 0.5


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


def test_axes_that_vary_are_those_of_several_values():
    rows = pd.DataFrame({"tp": [1, 2, None], "pp": [1, 1, 1], "cp": [None, None, 2], "zero": [0, 1, 2]})
    assert varied_axes(rows) == ["tp", "zero"]


@pytest.mark.parametrize("rows", [2, 3])
def test_a_bubble_needs_three_configurations(rows):
    assert (bubble(piped(1.0).query("grad_accum == 4").head(rows).drop(columns="value")) is None) is (rows < 3)


def test_what_a_bubble_explains_is_the_square_of_the_correlation():
    made = piped(1.3).drop(columns="value")
    noise = 1 + 0.05 * np.sin(7 * np.arange(len(made)))
    made["tokens_per_second_per_gpu"] *= noise
    x, y = np.log1p((made["pp"] - 1) / made["grad_accum"]), -np.log(made["tokens_per_second_per_gpu"])
    found = bubble(made)
    assert found["configurations"] == 9
    assert found["explained"] == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    assert found["slope"] == pytest.approx(np.polyfit(x, y, 1)[0])
