"""Implausible measurements, and the parts of a record one by one."""

import dataclasses

import pytest

from sweep.outcomes import Outcome
from sweep.records.metrics import efficiency, slow_rank
from sweep.records.schema import Efficiency, Metrics, json_text, over_ranks
from sweep.records.validity import implausible, mismatches, oddities, of_another_torch, refusal
from tests.support.made_records import made_measurement, made_record, made_run

POSITIVE = ("tokens_per_second", "tokens_per_second_per_gpu", "step_time_median_s", "tflops_per_gpu")


@pytest.mark.parametrize(
    ("measured", "gpu", "dtype", "words"),
    [
        ({"reported_mfu": 1.15}, "h100", "bf16", "no hardware exceeds it"),
        ({"mfu": 0.5, "hfu": 0.4}, "h100", "bf16", "hfu 40.0% is less than mfu 50.0%"),
        *(({name: 0.0}, None, None, f"{name} is 0.0") for name in (*POSITIVE, "mfu")),
        *(({name: 1e-9}, None, None, None) for name in POSITIVE),
        ({"mfu": 0.85}, "h100", "bf16", "the best matrix product on h100 reaches 84%"),
        ({"mfu": 0.85}, "H100", "fp16", "the best matrix product on H100 reaches 84%"),
        ({"mfu": 0.96}, "a card of tomorrow", "bf16", "reaches 95%"),
        ({"mfu": 0.85}, "h100", "fp32", None),
        ({"mfu": 0.9}, "h20", "bf16", None),
        ({"mfu": 0.80, "hfu": 0.81}, "h100", "bf16", None),
        ({"mfu": 0.844}, "h100", "bf16", "reaches 84%"),
        ({"mfu": 0.4, "hfu": 0.4 * (1 - 1e-9)}, "h100", "bf16", None),
        ({"mfu": 0.4, "hfu": 0.4 * (1 - 2e-9)}, "h100", "bf16", "is less than mfu"),
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


def test_efficiency_without_a_rate_or_shape_is_null_where_it_needs_one():
    without = efficiency(made_run(), None, "h100")
    assert (without.mfu, without.hfu, without.tflops_per_gpu) == (None, None, None)
    assert without.flops_per_token > 0
    assert efficiency(dataclasses.replace(made_run(), shape={}), 1e6, "h100") == Efficiency()


def test_values_of_many_ranks_become_one():
    merged = over_ranks([{"a": 1, "b": "x", "c": True, "e": 4}, {"a": 3, "b": "y", "c": False, "d": None, "e": 4}])
    assert merged.pop("a") == {"min": 1, "median": 2, "max": 3, "max_rank": 1}
    assert merged == {"b": "x", "c": True, "d": None, "e": 4}
    text = json_text({"b": [float("nan"), 1], "a": {"x": float("inf")}})
    assert text == '{"a":{"x":null},"b":[null,1]}'


@pytest.mark.parametrize(("other", "noted"), [
    ([2.0, 1.0], False), ([2.0, 1.0009], False), ([2.0, 1.002], True), ([2.0, 1.0, 0.5], True), ([2.0], True),
    (None, False), ([2.0, -1.0], True),
])  # fmt: skip
def test_ranks_that_train_one_model_report_one_loss_within_a_thousandth(other, noted):
    ranks = [made_measurement(losses=[2.0, 1.0]), made_measurement(losses=other)]
    found = oddities(ranks)
    assert bool(found) is noted
    assert not noted or found[0].startswith("rank 1 reports other losses")
    assert oddities([made_measurement(losses=[0.0]), made_measurement(losses=[1e-7])]) == [], "of nothing a millionth"


def test_versions_that_differ_between_ranks_are_named_by_program():
    ranks = [
        made_measurement(versions=v) for v in ({"nccl": "2.1", "torch": "2.9"}, {"torch": "2.10"}, {"nccl": "2.1"})
    ]
    assert oddities(ranks) == ["ranks run different versions of torch: 2.10, 2.9"]


@pytest.mark.parametrize(("missing", "named"), [
    (1, "ranks 0 gave"), (8, "ranks 0, 1, 2, 3, 4, 5, 6, 7 gave"), (9, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more gave"),
    (12, "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more gave"),
])  # fmt: skip
def test_at_most_eight_ranks_are_named(missing, named):
    ranks = [None] * missing + [made_measurement()]
    assert named in refusal(made_run(), ranks)[1]
    impossible = [made_measurement(0.1, 0.0, 0.1)] * missing
    assert f"step times from {named}".removesuffix(" gave") in refusal(made_run(), impossible)[1]
    record = made_record(measurements=[None])
    assert (record.outcome, "all ranks gave no measurement" in made_record(measurements=[]).message) == (
        "unknown",
        True,
    )


@pytest.mark.parametrize(("stated", "devices", "other"), [
    ("h100", (None, "NVIDIA H100 80GB HBM3"), None), ("h100", (None, "NVIDIA A100-SXM4-80GB"), 1),
    ("h100", (None, "a card of tomorrow"), None), ("h100", (None, None), None),
    ("cpu", (None, "NVIDIA A100-SXM4-80GB"), None), (None, (None, "NVIDIA A100-SXM4-80GB"), None),
    ("h100", ("NVIDIA B200", "NVIDIA A100-SXM4-80GB"), 0),
])  # fmt: skip
def test_a_known_device_of_another_kind_than_stated_is_a_mismatch_and_the_first_such_rank_is_named(
    stated, devices, other
):
    found = refusal(made_run(), [made_measurement(device=device) for device in devices], stated)
    fact = f"gpu: the site states {stated}, rank {other} measured on {devices[other or 0]}"
    assert found == (None if other is None else (Outcome.CONFIG_MISMATCH, fact))


def test_ranks_that_timed_different_numbers_of_iterations_are_a_mismatch():
    run = dataclasses.replace(made_run(), iterations=2)
    timed = [made_measurement(*[1.0] * count) for count in (3, 2, 4)]
    assert mismatches(run, timed) == ["iterations: ranks timed 2 to 4"]
    assert mismatches(run, timed[:1] * 2) == []
    assert mismatches(run, [timed[0], made_measurement(1.0)]) == ["iterations: requested 2, timed 1"]


def test_a_difference_of_many_ranks_is_named_once_with_their_number():
    run = made_run()
    ranks = [made_measurement(effective={"tp": run.layout.tp + number}) for number in (0, 1, 1, 2)]
    asked = run.layout.tp
    assert mismatches(run, ranks) == [f"tp: requested {asked}, ran {asked + 1} (rank 1) and 2 more ranks"]


@pytest.mark.parametrize(("planned", "runs", "noted"), [
    ("2.13", "2.13.1+cu126", False), ("2.13", "2.12.0", True), ("2.13.1", "2.13.0", True), (None, "2.12.0", False),
    ("2.13", None, False), ("nightly", "2.12.0", False), ("2", "2.12.0", False),
])  # fmt: skip
def test_a_plan_for_another_torch_is_noted(planned, runs, noted):
    ranks = [made_measurement(), made_measurement(versions={"torch": runs} if runs else {})]
    found = of_another_torch(ranks, planned)
    assert bool(found) is noted
    assert not noted or found[0].endswith("plan again with torch_version: '" + runs.split("+")[0] + "'")


@pytest.mark.parametrize(("medians", "step", "wanted"), [
    ([1.0, 1.0, 1.0, 1.11], 1.0, 3), ([1.0, 1.0, 1.0, 1.09], 1.0, None), ([1.0], 1.0, None), ([1.0, 2.0], 1.0, 1),
    ([0.0, 0.0, 0.0, 0.051], 1.0, 3), ([0.0, 0.0, 0.0, 0.049], 1.0, None),  # a twentieth of a step
    ([1.0, 1.0, 1.0, 1.11], 4.0, None),
    # Collectives run concurrently with computation: what is left of a step may be nothing, its tenth means nothing
    ([0.001, 0.002, 0.001, 0.001], 0.1, None), ([-0.01, -0.01, -0.01, -0.009], 0.1, None),
    ([-0.01, -0.01, -0.01, 0.02], 0.1, 3),
])  # fmt: skip
def test_a_rank_is_slow_from_a_tenth_of_the_usual_time_or_a_twentieth_of_a_step(medians, step, wanted):
    assert slow_rank(medians, step) == wanted
