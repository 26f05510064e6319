"""Metrics by name, in their units, and numbers as text."""

import math

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


def test_memory_is_in_binary_units():
    assert [memory_text(x) for x in (41.8 * 2**30, 350 * 2**20, 2048)] == ["41.8 GiB", "350 MiB", "2.00 KiB"]


def test_an_unknown_metric_gets_a_suggestion():
    with pytest.raises(SweepError, match=r"did you mean mfu\?"):
        metric_named("mfuu")
