"""The record: what it holds, what an `ok` must prove, and what cannot be true."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.contract import Measurement
from sweep.outcomes import Outcome
from sweep.records import metrics
from sweep.records.record import implausible
from sweep.records.schema import COLLECTED, COLUMNS, problems, table_markdown
from tests.support.made_records import TINY, made_measurement, made_record, made_run, reference

METRICS = ("tokens_per_second", "step_time_median_s", "step_times_s", "tflops_per_gpu", "mfu", "hfu", "losses")


def test_a_record_has_every_column_and_only_json_values():
    record = made_record(gpu="h100")
    assert list(record) == [column.name for column in COLUMNS]
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert problems(record) == []


def test_an_iteration_lasts_as_long_as_its_slowest_rank_and_the_median_counts():
    ranks = [made_measurement(0.1, 0.2, 0.9), made_measurement(0.3, 0.1, 0.8)]
    record = made_record(measurements=ranks)
    assert record["step_times_s"] == [0.3, 0.2, 0.9]
    assert (record["step_time_min_s"], record["step_time_median_s"], record["step_time_max_s"]) == (0.2, 0.3, 0.9)
    assert record["rank_step_time_median_s"] == [0.2, 0.3]
    assert record["tokens_per_second"] == pytest.approx(8 * 128 / 0.3)
    assert record["tokens_per_second_per_gpu"] == pytest.approx(8 * 128 / 0.3 / 2)


def test_one_disturbed_iteration_does_not_move_the_metrics():
    quiet, disturbed = made_record(times=(0.1, 0.1, 0.1)), made_record(times=(0.1, 0.1, 30.0))
    assert disturbed["tokens_per_second"] == quiet["tokens_per_second"]
    assert disturbed["step_time_max_s"] == 30.0


def test_flops_by_hand():
    # 4 layers of 4 h^2 attention (all heads) and 3 h H MLP, and the output projection; causal attention 2 L h s.
    weights = 4 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 512
    attention = 4 * 2 * 64 * 128
    record = made_record(times=(0.1, 0.1, 0.1), gpu="H100")
    assert record["flops_per_token"] == 6 * weights + 3 * attention
    rate = record["tokens_per_second_per_gpu"]
    assert record["tflops_per_gpu"] == pytest.approx(rate * record["flops_per_token"] / 1e12)
    assert record["mfu"] == pytest.approx(record["tflops_per_gpu"] / 989)
    assert record["hfu"] == record["mfu"]
    assert record["flops_convention"].startswith("matmul-causal")


def test_recomputation_raises_hfu_only():
    plain, full = (made_record(made_run(recompute=kind), gpu="h100") for kind in ("none", "full"))
    assert full["mfu"] == plain["mfu"]
    assert full["hfu"] > 1.2 * full["mfu"]


def test_selective_recomputation_raises_hfu_where_it_repeats_attention():
    ours, theirs = (
        made_record(dataclasses.replace(made_run(recompute="selective"), workload=name), gpu="h100")
        for name in ("transformer", "megatron")
    )
    assert ours["hfu"] == ours["mfu"], "it keeps the outputs of all products and of attention"
    assert theirs["hfu"] > theirs["mfu"]


def test_hfu_follows_the_count_where_there_is_one():
    run = made_run(recompute="full")
    by_formula = made_record(run, gpu="h100")
    weights = 4 * (4 * 64 * 64 + 3 * 64 * 128) + 64 * 512
    attention = 4 * 2 * 64 * 128
    counted = int(1.25 * 6 * weights * run.global_batch_tokens)
    ranks = [made_measurement(extra={"executed_matmul_flops_per_step": counted})] * run.gpus
    record = made_record(run, measurements=ranks, gpu="h100")
    assert record["mfu"] == by_formula["mfu"]
    factor = (1.25 * 6 * weights + 4 * attention) / (6 * weights + 3 * attention)
    assert record["hfu"] / record["mfu"] == pytest.approx(factor)
    assert record["hfu"] < by_formula["hfu"]
    too_few = [made_measurement(extra={"executed_matmul_flops_per_step": 1})] * run.gpus
    assert made_record(run, measurements=too_few, gpu="h100")["notes"] == []


def test_where_no_peak_is_known_mfu_is_null_and_tflops_are_given():
    for gpu in ("cpu", None, "a card of tomorrow"):
        record = made_record(gpu=gpu)
        assert record["mfu"] is None
        assert record["hfu"] is None
        assert record["tflops_per_gpu"] > 0


def test_a_workload_without_a_model_has_no_flops():
    record = made_record(made_run(shape={}))
    assert record["outcome"] == "ok"
    assert record["tokens_per_second"] > 0
    assert [record[name] for name in ("tflops_per_gpu", "parameters_total", "flops_convention")] == [None] * 3


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.OK])
def test_a_failure_has_no_metrics_but_keeps_what_is_known(outcome):
    measurements = [made_measurement(peak_allocated_bytes=5), None]
    record = made_record(outcome=outcome, message="why", evidence="line", advice="try", measurements=measurements)
    assert [record[name] for name in METRICS] == [None] * len(METRICS)
    assert record["rank_peak_memory_bytes"] == [5, None]
    assert (record["outcome"], record["evidence"], record["advice"]) == (str(outcome), "line", "try")
    assert problems(record) == []


@pytest.mark.parametrize(
    ("effective", "words"),
    [
        ({"dp": 1}, "dp: asked 2, ran 1"),
        ({"micro_batch_size": 2}, "micro_batch_size: asked 1, ran 2"),
        ({"global_batch_tokens": 512}, "global_batch_tokens: asked 1024, ran 512"),
        ({"dtype": "fp32"}, "dtype: asked bf16, ran fp32"),
        ({"recompute": "full", "zero": 3}, "recompute: asked none, ran full"),
    ],
)
def test_what_ran_must_be_what_was_asked(effective, words):
    record = made_record(measurements=[made_measurement(), made_measurement(effective=effective)])
    assert record["outcome"] == "config_mismatch"
    assert words in record["message"]
    assert "rank 1" in record["message"]
    assert record["tokens_per_second"] is None


def test_every_difference_is_named_once():
    ranks = [made_measurement(effective={"dp": 1, "tp": 2, "anything": 7})] * 2
    message = made_record(measurements=ranks)["message"]
    assert message.count("asked") == 2
    assert "1 more rank" in message


def test_the_schedule_is_of_no_effect_without_a_pipeline():
    ranks = [made_measurement(effective={"pp_schedule": "gpipe"})] * 2
    assert made_record(measurements=ranks)["outcome"] == "ok"
    run = made_run(dp=1, pp=2, grad_accum=8)
    assert made_record(run, measurements=ranks)["outcome"] == "config_mismatch"


def test_fewer_iterations_than_asked_are_a_mismatch_and_more_are_not():
    assert made_record(times=(0.1, 0.1))["outcome"] == "config_mismatch"
    none = [Measurement(step_times_s=[])] * 2
    assert made_record(measurements=none)["message"] == "iterations: asked 3, timed 0"
    assert made_record(times=(0.1,) * 9)["outcome"] == "ok"
    uneven = [made_measurement(0.1, 0.1, 0.1), made_measurement(0.1, 0.1, 0.1, 0.1)]
    assert made_record(measurements=uneven)["outcome"] == "config_mismatch"


@pytest.mark.parametrize("measurements", [[], [None, None], [made_measurement(), None]])
def test_silence_is_no_success(measurements):
    record = made_record(measurements=measurements)
    assert record["outcome"] == "unknown"
    assert "gave no measurement" in record["message"]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_impossible_step_times_are_no_measurement(bad):
    record = made_record(times=(0.1, bad, 0.1))
    assert record["outcome"] == "unknown"
    assert "impossible step times" in record["message"]


@pytest.mark.parametrize("name", ["losses", "grad_norms"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_named(name, bad):
    ranks = [made_measurement(**{name: [1.0, bad]})] * 2
    record = made_record(measurements=ranks)
    assert record["outcome"] == "nan_loss"
    assert f"{name}[1]" in record["message"]
    json.dumps(record, allow_nan=False)


def test_memory_is_the_greatest_over_ranks():
    ranks = [made_measurement(peak_allocated_bytes=n, peak_reserved_bytes=10 * n, parameters=n) for n in (3, 7)]
    record = made_record(measurements=ranks)
    assert (record["peak_memory_bytes"], record["peak_memory_reserved_bytes"]) == (7, 70)
    assert (record["rank_peak_memory_bytes"], record["rank_parameters"]) == ([3, 7], [3, 7])
    assert record["memory_kind"] == "the allocator's peak over the timed iterations, greatest over ranks"


def test_what_a_peak_counts_is_the_ranks_to_say():
    kinds = ("tensors alive at once in one further iteration", "as the trainer reports it")
    ranks = [made_measurement(peak_allocated_bytes=1, memory_kind=kind) for kind in (*kinds, kinds[0])]
    told = made_record(measurements=ranks)["memory_kind"]
    assert told == f"{kinds[1]}; {kinds[0]}, greatest over ranks"
    assert made_record(measurements=ranks[:1] + ranks[2:])["memory_kind"] == f"{kinds[0]}, greatest over ranks"


def test_unmeasured_memory_is_null_never_zero():
    record = made_record(measurements=[made_measurement()] * 2)
    names = ("peak_memory_bytes", "peak_memory_reserved_bytes", "rank_peak_memory_bytes", "memory_kind")
    assert [record[name] for name in names] == [None] * 4


def test_the_slow_rank_is_named_and_equal_ranks_are_not():
    ranks = [made_measurement(0.1, 0.1, 0.1)] * 3 + [made_measurement(0.12, 0.12, 0.12)]
    run = made_run(gpus_per_node=4, dp=4, grad_accum=2)
    assert made_record(run, measurements=ranks)["slow_rank"] == 3
    assert made_record()["slow_rank"] is None


@pytest.mark.parametrize(
    ("own", "slow"),
    [
        ([0.050, 0.050, 0.050, 0.070], 3),
        ([0.001, 0.002, 0.001, 0.001], None),
        ([-0.01, -0.01, -0.01, -0.009], None),
        ([-0.01, -0.01, -0.01, 0.02], 3),
    ],
)
def test_own_times_that_overlap_has_eaten_accuse_nobody_for_nothing(own, slow):
    """On a GPU collectives run beside computation: what is left of a step may be nothing, its tenth means nothing."""
    ranks = [made_measurement(0.1, 0.1, 0.1, extra={"own_time_median_s": value}) for value in own]
    run = made_run(gpus_per_node=4, dp=4, grad_accum=2)
    assert made_record(run, measurements=ranks)["slow_rank"] == slow


def test_ranks_that_disagree_make_a_record_suspect():
    two_versions = [made_measurement(versions={"torch": v}) for v in ("2.13", "2.11")]
    assert "different versions of torch" in made_record(measurements=two_versions)["notes"][0]
    two_losses = [made_measurement(losses=[x, x]) for x in (1.0, 2.0)]
    record = made_record(measurements=two_losses)
    assert record["suspect"]
    assert "other losses" in record["notes"][0]
    last_stage_only = [made_measurement(), made_measurement(losses=[1.0, 0.9])]
    assert made_record(measurements=last_stage_only)["losses"] == [1.0, 0.9]


@pytest.mark.parametrize(
    ("site", "told"),
    [(None, False), ("2.13", False), ("2.13.0", False), ("2.13.0+cu130", False), ("2.13.1", True), ("2.11.0", True)],
)
def test_a_site_that_names_another_torch_is_told(site, told):
    ranks = [made_measurement(versions={"torch": "2.13.0+cpu"})] * 2
    record = made_record(measurements=ranks, torch_version=site)
    assert record["suspect"] is told
    assert bool(record["notes"]) is told
    if told:
        assert f"the site says torch {site}, the ranks run 2.13.0+cpu" in record["notes"][0]
        assert "torch_version: '2.13.0'" in record["notes"][0]


def test_further_numbers_are_summed_up_over_ranks():
    ranks = [made_measurement(extra={"clock_mhz": n, "kind": "x", "retries": 0}) for n in (5, 9)]
    extra = json.loads(made_record(measurements=ranks, extra={"note": math.nan})["extra_json"])
    assert extra["clock_mhz"] == {"min": 5, "median": 7, "max": 9, "max_rank": 1}
    assert (extra["kind"], extra["retries"], extra["note"]) == ("x", 0, None)


def test_simulated_is_said():
    assert made_record(measurements=[made_measurement(simulated=True)] * 2)["simulated"] is True
    assert made_record()["simulated"] is False


def test_more_than_the_peak_is_implausible():
    record = made_record(times=(1e-7, 1e-7, 1e-7), gpu="h100")
    assert record["mfu"] > 1
    assert record["suspect"]
    assert any("no hardware does more than its peak" in note for note in record["notes"])


def test_published_utilisation_is_plausible_and_an_impossible_one_is_not():
    for value in reference("playbook_runs.csv")["mfu_pct"].dropna():
        assert implausible({"reported_mfu": value / 100}) == []
    assert implausible({"reported_mfu": 1.15})
    assert implausible({"mfu": 0.5, "hfu": 0.4})
    assert implausible({"tokens_per_second": 0.0})


def test_times_are_kept_by_name_and_the_total_is_the_attempts():
    record = made_record(times_s={"start_s": 2.0, "pilot_idle_s": 0.5})
    assert (record["start_s"], record["pilot_idle_s"], record["total_s"]) == (2.0, 0.5, 3.0)
    assert record["teardown_s"] is None
    with pytest.raises(AssertionError, match="warmup"):
        made_record(times_s={"warmup": 1.0})


def test_problems_name_what_breaks_the_schema():
    record = made_record()
    record.update(dp="8", mfu=math.nan, compile=1, outcome="fine", losses=[1.0, "x"], extra=1)
    del record["gpu"]
    found = " ".join(problems(record))
    for word in (
        "dp must be int64",
        "mfu must be double",
        "compile must be bool",
        "'fine'",
        "losses",
        "'extra'",
        "'gpu'",
    ):
        assert word in found


@given(st.lists(st.floats(0.001, 100), min_size=3, max_size=9), st.integers(1, 4))
def test_the_rate_is_consistent_with_its_step_times(times, ranks):
    run = made_run(gpus_per_node=ranks, dp=ranks)
    record = made_record(run, times=times)
    assert record["step_time_min_s"] <= record["step_time_median_s"] <= record["step_time_max_s"]
    product = record["tokens_per_second_per_gpu"] * record["gpus"] * record["step_time_median_s"]
    assert product == pytest.approx(record["global_batch_tokens"])


def test_units_are_told_for_all_that_is_measured():
    for column in COLUMNS + COLLECTED:
        assert column.meaning, column
        if column.name.endswith("_s"):
            assert column.unit == "s", column
        if column.name.endswith("_bytes"):
            assert column.unit == "bytes", column
    assert len({column.name for column in COLUMNS + COLLECTED}) == len(COLUMNS + COLLECTED)


def test_the_requested_names_hold_every_layout_field():
    asked = metrics.requested(made_run(dp=1, pp=2))
    assert {f.name for f in dataclasses.fields(made_run().layout)} <= set(asked)
    assert asked["world_size"] == 2


def test_parameters_follow_the_shape():
    record = made_record()
    matrices = TINY["num_layers"] * (4 * 64 * 64 + 3 * 64 * 128)
    norms = (2 * TINY["num_layers"] + 1) * 64
    assert record["parameters_total"] == record["parameters_active"] == matrices + norms + 2 * 64 * 512


def test_the_docs_hold_the_schema(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "records.md").read_text()
    assert table_markdown() in page, "write it anew: python -m sweep.records.schema > docs/records.md"
