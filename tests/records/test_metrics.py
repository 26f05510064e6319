"""Metrics computed from measurements: times, spreads, memory, oddities, refusals."""

import dataclasses
import json
import math

import pytest

from tests.support.made_records import as_json, made_measurement, made_record, made_run

# 4 layers of 4 h^2 attention (all heads) and 3 h H MLP, and the output projection; causal attention 2 L h s.
WEIGHTS, ATTENTION = 4 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 512, 4 * 2 * 64 * 128


def test_an_iteration_lasts_as_long_as_its_slowest_rank_and_the_median_counts():
    ranks = [made_measurement(0.1, 0.2, 0.9), made_measurement(0.3, 0.1, 0.8)]
    record = made_record(measurements=ranks)
    assert record.step_times_s == [0.3, 0.2, 0.9]
    assert (record.step_time_min_s, record.step_time_median_s, record.step_time_max_s) == (0.2, 0.3, 0.9)
    assert record.rank_step_time_median_s == [0.2, 0.3]
    assert record.tokens_per_second == pytest.approx(8 * 128 / 0.3)
    assert record.tokens_per_second_per_gpu == pytest.approx(8 * 128 / 0.3 / 2)


def test_flops_by_hand():
    record = made_record(times=(0.1, 0.1, 0.1), gpu="H100")
    assert record.flops_per_token == 6 * WEIGHTS + 3 * ATTENTION
    rate = record.tokens_per_second_per_gpu
    assert record.tflops_per_gpu == pytest.approx(rate * record.flops_per_token / 1e12)
    assert record.peak_tflops_per_gpu == 989
    assert record.mfu == pytest.approx(record.tflops_per_gpu / 989)
    assert record.hfu == record.mfu
    assert record.flops_convention.startswith("matmul-causal")


def test_of_a_run_in_8_bits_the_share_of_the_half_precision_peak_is_given_too():
    narrow, half = (made_record(made_run(dtype=dtype), gpu="h100") for dtype in ("fp8_rowwise", "bf16"))
    assert narrow.mfu == pytest.approx(half.mfu * 989 / 1979)
    assert narrow.mfu_of_bf16 == pytest.approx(half.mfu)
    assert half.mfu_of_bf16 is None


def test_recomputation_raises_hfu_only():
    plain, full = (made_record(made_run(recompute=kind), gpu="h100") for kind in ("none", "full"))
    assert full.mfu == plain.mfu
    assert full.hfu > 1.2 * full.mfu


def test_selective_recomputation_raises_hfu_where_it_repeats_attention():
    ours, theirs = (
        made_record(dataclasses.replace(made_run(recompute="selective"), workload=name), gpu="h100")
        for name in ("transformer", "megatron")
    )
    assert ours.hfu == ours.mfu, "it keeps the outputs of all products and of attention"
    assert theirs.hfu > theirs.mfu


def test_adapters_on_frozen_weights_need_four_flops_per_weight():
    """The weights get no gradient (LoRA): forward 2 and the gradient of the input 2; attention as ever."""
    run = dataclasses.replace(made_run(), params={"frozen_weights": True})
    record = made_record(run, gpu="h100")
    assert record.flops_per_token == 4 * WEIGHTS + 3 * ATTENTION
    assert record.hfu == record.mfu
    counted = [made_measurement(extra={"executed_matmul_flops_per_step": 1})] * run.gpus
    assert made_record(run, measurements=counted, gpu="h100").hfu == pytest.approx(record.mfu), "at least the model's"


def test_hfu_follows_the_count_where_there_is_one():
    run = made_run(recompute="full")
    by_formula = made_record(run, gpu="h100")
    counted = int(1.25 * 6 * WEIGHTS * run.global_batch_tokens)
    ranks = [made_measurement(extra={"executed_matmul_flops_per_step": counted})] * run.gpus
    record = made_record(run, measurements=ranks, gpu="h100")
    assert record.mfu == by_formula.mfu
    factor = (1.25 * 6 * WEIGHTS + 4 * ATTENTION) / (6 * WEIGHTS + 3 * ATTENTION)
    assert record.hfu / record.mfu == pytest.approx(factor)
    assert record.hfu < by_formula.hfu
    too_few = [made_measurement(extra={"executed_matmul_flops_per_step": 1})] * run.gpus
    assert made_record(run, measurements=too_few, gpu="h100").notes == []


def test_where_no_peak_is_known_mfu_is_null_and_tflops_are_given():
    for gpu in ("cpu", None, "a card of tomorrow"):
        record = made_record(gpu=gpu)
        assert record.mfu is None
        assert record.hfu is None
        assert record.tflops_per_gpu > 0


@pytest.mark.parametrize(
    ("effective", "words"),
    [
        ({"dp": 1}, "dp: requested 2, ran 1"),
        ({"micro_batch_size": 2}, "micro_batch_size: requested 1, ran 2"),
        ({"global_batch_tokens": 512}, "global_batch_tokens: requested 1024, ran 512"),
        ({"dtype": "fp32"}, "dtype: requested bf16, ran fp32"),
        ({"recompute": "full", "zero": 3}, "recompute: requested none, ran full"),
    ],
)
def test_what_ran_must_be_what_was_requested(effective, words):
    record = made_record(measurements=[made_measurement(), made_measurement(effective=effective)])
    assert record.outcome == "config_mismatch"
    assert words in record.message
    assert "rank 1" in record.message
    assert record.tokens_per_second is None


def test_the_schedule_has_no_effect_without_a_pipeline():
    ranks = [made_measurement(effective={"pp_schedule": "gpipe"})] * 2
    assert made_record(measurements=ranks).outcome == "ok"
    run = made_run(dp=1, pp=2, grad_accum=8)
    assert made_record(run, measurements=ranks).outcome == "config_mismatch"


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_step_times_are_no_measurement(bad):
    record = made_record(times=(0.1, bad, 0.1))
    assert record.outcome == "unknown"
    assert "impossible step times" in record.message


@pytest.mark.parametrize("name", ["losses", "grad_norms"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_named(name, bad):
    ranks = [made_measurement(**{name: [1.0, bad]})] * 2
    record = made_record(measurements=ranks)
    assert record.outcome == "nan_loss"
    assert f"{name}[1]" in record.message
    json.dumps(as_json(record), allow_nan=False)


def test_what_a_job_costs_is_as_the_first_rank_states_it():
    stating = made_measurement(0.1, 0.1, 0.1, extra={"checkpoint_stall_s": 5.0, "checkpoint_restore_s": math.inf})
    record = made_record(measurements=[stating, made_measurement(0.1, 0.1, 0.1)])
    assert (record.checkpoint_stall_s, record.checkpoint_restore_s) == (5.0, None), "no number is none"


@pytest.mark.parametrize(("other", "of_both"), [(0.6, 0.5), (..., None), (None, None), (math.inf, None), (0.0, None)])
def test_energy_per_token_is_that_of_all_gpus_and_unknown_where_one_does_not_count_its_own(other, of_both):
    """Each of its own, equal, share of the tokens."""
    extras = [{"energy_j_per_token": 0.4}, {} if other is ... else {"energy_j_per_token": other}]
    found = made_record(measurements=[made_measurement(extra=extra) for extra in extras]).energy_j_per_token
    assert found == (of_both and pytest.approx(of_both))
