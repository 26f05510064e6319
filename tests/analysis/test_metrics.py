"""Metrics by name, in their units, and numbers as text."""

import math

import pandas as pd
import pytest

from analysis.metrics import memory_text, metric_named, number
from sweep.errors import SweepError


@pytest.mark.parametrize(
    ("value", "text"),
    [(44.32, "44.3"), (5.25, "5.25"), (38894.5, "38.9k"), (7503.3, "7,503"), (1.25e6, "1.25M"), (100, "100"),
     (0.0421, "0.0421"), (0, "0"), (999.7, "1000"), (math.nan, "–"), (2.5e10, "25.0G")],
)  # fmt: skip
def test_numbers_are_short_and_precise(value, text):
    assert number(value) == text


def test_memory_is_in_one_binary_unit():
    sizes = (41.8 * 2**30, 350 * 2**20, 20 * 2**20, 2048, 0)
    assert [memory_text(x) for x in sizes] == ["41.8 GiB", "0.34 GiB", "0.02 GiB", "<0.01 GiB", "0 GiB"]


def test_money_and_carbon_by_hand():
    records = pd.DataFrame(
        {"tokens_per_second_per_gpu": [1000.0], "energy_j_per_token": [0.72], "dollars_per_gpu_hour": [3.6],
         "co2_g_per_kwh": [500.0]}
    )  # fmt: skip
    assert metric_named("dollars_per_million_tokens").of(records).item() == pytest.approx(1.0)  # 1,000 s of 0.1 cents
    assert metric_named("energy_j_per_token").of(records).item() == 0.72
    assert metric_named("co2_g_per_million_tokens").of(records).item() == pytest.approx(100.0)  # 0.2 kWh


@pytest.mark.parametrize("name", ["dollars_per_million_tokens", "co2_g_per_million_tokens"])
def test_a_metric_without_its_price_names_the_key_of_the_site_file(name):
    records = pd.DataFrame({"tokens_per_second_per_gpu": [1.0], "energy_j_per_token": [1.0]})
    records = records.assign(dollars_per_gpu_hour=float("nan"), co2_g_per_kwh=float("nan"))
    with pytest.raises(SweepError, match=metric_named(name).needs) as error:
        metric_named(name).of(records)
    assert "site.yaml" in (error.value.mistakes[0].remedy or "")


def test_an_unknown_metric_gets_a_suggestion():
    with pytest.raises(SweepError, match=r"did you mean mfu\?"):
        metric_named("mfuu")
