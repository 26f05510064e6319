"""Implausible measurements, and the parts of a record one by one."""

import dataclasses
import json

import pytest

from sweep.outcomes import Outcome
from sweep.records.json_columns import json_text, over_ranks
from sweep.records.metrics import efficiency, memory, metrics, rates, training
from sweep.records.schema import Efficiency, Metrics, Rates
from sweep.records.validity import implausible, refusal
from tests.support.made_records import made_measurement, made_record, made_run


@pytest.mark.parametrize(
    ("measured", "gpu", "dtype", "words"),
    [
        ({"reported_mfu": 1.15}, "h100", "bf16", "no hardware exceeds its peak"),
        ({"mfu": 0.5, "hfu": 0.4}, "h100", "bf16", "hfu 40.0% is less than mfu 50.0%"),
        ({"tokens_per_second": 0.0}, None, None, "tokens_per_second is 0.0"),
        ({"mfu": 0.82}, "h100", "bf16", "the best matrix product on h100 reaches 81%"),
        ({"mfu": 0.82}, "H100", "fp16", "the best matrix product on H100 reaches 81%"),
        ({"mfu": 0.96}, "a card of tomorrow", "bf16", "reaches 95%"),
        ({"mfu": 0.82}, "h100", "fp32", None),
        ({"mfu": 0.80, "hfu": 0.81}, "h100", "bf16", None),
        ({}, None, None, None),
    ],
)
def test_implausible_values_are_reported(measured, gpu, dtype, words):
    notes = implausible(Metrics(**measured), gpu, dtype)
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_a_measurement_faster_than_any_matrix_product_is_suspect():
    """The rule that imports are checked by holds for our own measurements too."""
    slow = made_record(times=(1.0, 1.0, 1.0), gpu="H100")
    to_90_percent = slow.mfu / 0.9
    record = made_record(times=(to_90_percent,) * 3, gpu="H100")
    assert record.mfu == pytest.approx(0.9)
    assert record.suspect
    assert "best matrix product" in record.notes[0]


def test_an_ok_that_every_rank_proves_is_not_refused():
    assert refusal(made_run(), [made_measurement()] * 2) is None
    outcome, why = refusal(made_run(), [made_measurement(), None])
    assert (outcome, why) == (Outcome.UNKNOWN, "ended without error, but ranks 1 gave no measurement")


def test_only_a_valid_measurement_has_rates_efficiency_and_losses():
    ranks = [made_measurement(losses=[1.0] * 3, parameters=7, peak_allocated_bytes=5), None]
    failed = metrics(made_run(), ranks, "h100", valid=False)
    assert failed == Metrics(**vars(memory(ranks)), **vars(training(ranks, valid=False)))
    assert (failed.losses, failed.rank_parameters, failed.rank_peak_memory_bytes) == (None, [7, None], [5, None])
    valid = metrics(made_run(), [made_measurement()] * 2, "h100", valid=True)
    assert valid.tokens_per_second == rates(made_run(), [made_measurement()] * 2).tokens_per_second
    assert valid.mfu is not None
    assert metrics(made_run(), [], None, valid=False).simulated is False


def test_the_name_of_a_gpu_is_read_in_either_case():
    assert efficiency(made_run(), 1e6, "H100") == efficiency(made_run(), 1e6, "h100")


def test_efficiency_without_a_rate_or_shape_is_null_where_it_needs_one():
    without = efficiency(made_run(), None, "h100")
    assert (without.mfu, without.hfu, without.tflops_per_gpu) == (None, None, None)
    assert without.flops_per_token > 0
    assert efficiency(dataclasses.replace(made_run(), shape={}), 1e6, "h100") == Efficiency()
    assert Rates() == Rates(tokens_per_second=None)


def test_values_of_many_ranks_become_one():
    merged = over_ranks([{"a": 1, "b": "x", "c": True}, {"a": 3, "b": "y", "c": False, "d": None}])
    assert merged == {"a": {"min": 1, "median": 2, "max": 3, "max_rank": 1}, "b": "x", "c": True, "d": None}
    text = json_text({"b": [float("nan"), 1], "a": {"x": float("inf")}})
    assert json.loads(text) == {"a": {"x": None}, "b": [None, 1]}
