"""The cost of axes: pipeline bubbles, and fixing an axis."""

import pandas as pd
import pytest

from analysis.derive.axes import sensitivity
from analysis.derive.scaling import bubble
from analysis.metrics import METRICS
from tests.support.made_records import playbook_records

RATE = METRICS["tokens_per_second_per_gpu"]


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


def test_fixing_an_axis_costs_what_the_best_without_it_lacks():
    made = pd.DataFrame(
        [
            ("m", 1, 1, 0, 100.0),
            ("m", 1, 2, 0, 90.0),
            ("m", 1, 2, 1, 80.0),
            ("m", 2, 1, 0, 50.0),
            ("m", 2, 2, 0, 100.0),
        ],
        columns=["model", "nodes", "tp", "zero", "tokens_per_second_per_gpu"],
    ).assign(outcome="ok", run_id=list("abcde"))
    table = sensitivity(made, RATE).set_index(["axis", "value"])
    assert table.loc[("tp", "1"), ["median", "worst", "wins", "cells"]].tolist() == [0.25, 0.5, 1, 2]
    assert table.loc[("tp", "2"), ["median", "worst"]].tolist() == pytest.approx([0.05, 0.1])
    assert table.loc[("zero", "1"), ["median", "missing"]].tolist() == pytest.approx([0.2, 1])
