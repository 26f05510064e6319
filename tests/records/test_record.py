"""The record: what it holds, what an `ok` must prove, and what cannot be true."""

import dataclasses
import json
import math
import re

import pytest

from sweep.contract import SlowBound
from sweep.outcomes import Outcome
from sweep.records.record import problems, record_from
from sweep.records.schema import COLUMNS
from tests.support.made_records import TINY, as_json, made_measurement, made_record, made_run

METRICS = ("tokens_per_second", "step_time_median_s", "step_times_s", "tflops_per_gpu", "mfu", "hfu", "losses")


def test_a_record_has_every_column_and_only_json_values():
    record = made_record(gpu="h100")
    assert list(as_json(record)) == [column.name for column in COLUMNS]
    assert record_from(json.loads(json.dumps(as_json(record), allow_nan=False))) == record
    assert problems(record) == []


def test_a_record_states_every_field_of_the_layout():
    run = made_run(ep=2, etp=1, dispatcher="deepep", routing="balanced", cuda_graphs="attn", virtual_stages=2)
    assert vars(made_record(run)).items() >= vars(run.layout).items()


def test_a_workload_without_a_model_has_no_flops():
    record = made_record(made_run(shape={}))
    assert record.outcome == "ok"
    assert record.tokens_per_second > 0
    assert [getattr(record, name) for name in ("tflops_per_gpu", "parameters_total", "flops_convention")] == [None] * 3


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.OK])
def test_a_failure_has_no_metrics_but_stores_what_is_known(outcome):
    measurements = [made_measurement(losses=[1.0] * 3, parameters=7, peak_allocated_bytes=5), None]
    record = made_record(outcome=outcome, message="why", evidence="line", advice="try", measurements=measurements)
    assert [getattr(record, name) for name in METRICS] == [None] * len(METRICS)
    assert (record.rank_peak_memory_bytes, record.rank_parameters, record.simulated) == ([5, None], [7, None], False)
    assert (record.outcome, record.evidence, record.advice) == (str(outcome), "line", "try")
    assert problems(record) == []


def test_memory_is_the_largest_over_ranks():
    ranks = [made_measurement(peak_allocated_bytes=n, peak_reserved_bytes=10 * n, parameters=n) for n in (3, 7)]
    record = made_record(measurements=ranks)
    assert (record.peak_memory_bytes, record.peak_memory_reserved_bytes) == (7, 70)
    assert (record.rank_peak_memory_bytes, record.rank_parameters) == ([3, 7], [3, 7])
    assert record.memory_kind == "the allocator's peak over the timed iterations, greatest over ranks"


def test_what_a_peak_counts_is_reported_by_the_ranks():
    kinds = ("tensors alive at once in one further iteration", "as the trainer reports it")
    ranks = [made_measurement(peak_allocated_bytes=1, memory_kind=kind) for kind in (*kinds, kinds[0])]
    noted = made_record(measurements=ranks).memory_kind
    assert noted == f"{kinds[1]}; {kinds[0]}, greatest over ranks"
    assert made_record(measurements=ranks[:1] + ranks[2:]).memory_kind == f"{kinds[0]}, greatest over ranks"


def test_unmeasured_memory_is_null_never_zero():
    record = made_record(measurements=[made_measurement()] * 2)
    names = ("peak_memory_bytes", "peak_memory_reserved_bytes", "rank_peak_memory_bytes", "memory_kind")
    assert [getattr(record, name) for name in names] == [None] * 4


def test_the_rank_of_the_longest_own_time_is_the_slow_one():
    ranks = [made_measurement(0.1, 0.1, 0.1, extra={"own_time_median_s": value}) for value in (0.05, 0.05, 0.05, 0.07)]
    assert made_record(made_run(gpus_per_node=4, dp=4, grad_accum=2), measurements=ranks).slow_rank == 3


def test_ranks_that_disagree_make_a_record_suspect():
    ranks = [made_measurement(versions={"torch": v}) for v in ("2.13", "2.11")]
    record = made_record(measurements=ranks, torch_version="2.11")
    assert (record.suspect, len(record.notes)) == (True, 2), "with each other, and with the site"
    last_stage_only = [made_measurement(), made_measurement(losses=[1.0, 0.9])]
    assert made_record(measurements=last_stage_only).losses == [1.0, 0.9]


def test_times_are_stored_by_name_and_the_total_is_the_attempts():
    record = made_record(start_s=2.0, pilot_idle_s=0.5)
    assert (record.start_s, record.pilot_idle_s, record.total_s) == (2.0, 0.5, 3.0)
    assert record.teardown_s is None


def test_parameters_follow_the_shape():
    record = made_record()
    matrices = TINY["num_layers"] * (4 * 64 * 64 + 3 * 64 * 128)
    norms = (2 * TINY["num_layers"] + 1) * 64
    assert record.parameters_total == record.parameters_active == matrices + norms + 2 * 64 * 512


def test_no_secret_of_the_environment_is_in_a_record():
    env = {"HF_TOKEN": "short", "MY_API_KEY": "k-123456", "NCCL_ALGO": "Ring", "PROXY": "http://me:pass1@host:80"}
    params = {"arguments": "--wandb-api-key=abcdef1 --eos-token x", "eos_token": "<end-of-text>", "size": 7}
    texts = {"message": "401: MY_API_KEY is k-123456", "evidence": "{'MY_API_KEY': 'k-123456'}", "advice": "rotate"}
    record = made_record(made_run(env=env, params=params), outcome=Outcome.PYTHON_EXCEPTION, **texts)
    assert not re.search("short|k-123456|pass1|abcdef1", json.dumps(as_json(record)))
    assert json.loads(record.env_json)["NCCL_ALGO"] == "Ring"
    stored = json.loads(record.params_json)
    assert (stored["eos_token"], stored["size"]) == ("<end-of-text>", 7)
    assert stored["arguments"] == "--wandb-api-key=<redacted> --eos-token x"
    assert (record.outcome, record.advice) == (Outcome.PYTHON_EXCEPTION, "rotate")


@pytest.mark.parametrize(("size", "digested"), [(64, []), (65, ["config"])])
def test_a_text_that_is_longer_than_its_digest_is_known_by_it_too(size, digested):
    record = made_record(made_run(params={"config": "x" * size, "zero": 1}))
    assert list(json.loads(record.extra_json or "{}").get("params_sha256", {})) == digested


def test_no_secret_that_the_ranks_inherit_is_in_a_record():
    """The environment of the site, of its setup lines and of the user, which a program prints when it fails."""
    texts = {"message": "401 for s1te-w1de", "evidence": "auth('s1te-w1de')", "advice": None}
    record = made_record(outcome=Outcome.PYTHON_EXCEPTION, secrets={"s1te-w1de"}, notes=("s1te-w1de",), **texts)
    assert "s1te-w1de" not in json.dumps(as_json(record))
    assert record.message == "401 for <redacted>"


WHOLE = {2**63 - 1: True, 2**63: False, 2**62: True, -(2**63) + 1: True, 3**40: False, 2**64: False}
FINITE = {1e300: True, math.inf: False, -math.inf: False, math.nan: False}


@pytest.mark.parametrize(("column", "value", "fits"), [
    *(("peak_memory_bytes", number, fits) for number, fits in WHOLE.items()),
    *(("rank_peak_memory_bytes", [1, number], fits) for number, fits in WHOLE.items()),
    *(("total_s", number, fits) for number, fits in FINITE.items()),
    *(("step_times_s", [1.0, number], fits) for number, fits in FINITE.items()),
    ("nodes", True, False), ("mfu", False, False), ("compile", 1, False),  # a bool is an int in Python
])  # fmt: skip
def test_a_number_fits_64_bits_or_is_finite_and_a_truth_value_is_none(column, value, fits):
    found = problems(dataclasses.replace(made_record(), **{column: value}))
    kind = next(one.type for one in COLUMNS if one.name == column)
    assert found == ([] if fits else [f"{column} must be {kind}, not {value!r}"])


@pytest.mark.parametrize(("switches", "stored"), [
    (("s1", "s1"), ["s1", "s1"]), (("s1", None), ["s1", None]), ((None, None), None), ((), None),
])  # fmt: skip
def test_leaf_switches_are_recorded_where_one_is_known(switches, stored):
    assert made_record(leaf_switches=switches).leaf_switches == stored


def test_groups_that_span_several_domains_are_recorded_where_all_domains_are_known():
    run = made_run(nodes=4, gpus_per_node=2, dp=2, tp=4)
    nodes = {"node_names": ("n1", "n2", "n3", "n4")}
    whole = made_record(run, domains=("a", "a", "b", "b"), **nodes)
    assert (whole.domains, whole.split_groups, whole.notes) == (["a", "a", "b", "b"], [], [])
    cut = made_record(run, domains=("a", "b", "b", "b"), **nodes)
    assert (cut.split_groups, cut.suspect) == (["tp"], False)
    assert cut.notes == ["tp groups span several NVLink domains: this pilot's nodes cannot keep each in one"]
    piped = made_record(made_run(nodes=4, gpus_per_node=2, dp=1, pp=4, tp=2), domains=("a", "a", "b", "b"), **nodes)
    assert (piped.split_groups, piped.notes) == (["pp"], []), "stages may be apart"
    unknown = made_record(run, domains=("a", None, "b", "b"), **nodes)
    assert (unknown.domains, unknown.split_groups) == (["a", None, "b", "b"], None)
    assert made_record(run, **nodes).domains is None


def test_versions_effective_values_device_and_warm_up_are_those_of_the_first_rank():
    ranks = [
        made_measurement(versions={"torch": v}, effective={"tp": 1, "rank": v}, device=v, warmup_times_s=[float(v)])
        for v in ("2.11", "2.13", "2.12")
    ]
    run = made_run(gpus_per_node=3, dp=3)
    record = made_record(run, measurements=ranks)
    assert json.loads(record.versions_json) == {"torch": "2.11"}
    assert json.loads(record.effective_json) == {"rank": "2.11", "tp": 1}
    nothing = made_record(outcome=Outcome.HANG, measurements=[None, None])
    assert (nothing.versions_json, nothing.effective_json) == (None, None)
    assert "phases_s" not in json.loads(nothing.extra_json)
    extra = json.loads(record.extra_json)
    assert (extra["device"], record.warmup_times_s, "phases_s" in extra) == ("2.11", [2.11], True)


BOUND = SlowBound(0.1, (), 1.2, "best.1")


def ranks_that_timed(*stopped):
    """Ranks that say after how many iterations they stopped; None: they did not, and timed all three."""
    return [made_measurement(*[0.3] * (3 if n is None else max(n, 1)), stopped=n) for n in stopped]


def test_a_run_that_ended_early_by_its_bound_is_ok_and_marked():
    record = made_record(measurements=ranks_that_timed(2, 2), bound=BOUND)
    assert (record.outcome, record.stopped, len(record.step_times_s)) == (Outcome.OK, "slow", 2)
    about = json.loads(record.extra_json)["stopped"]
    assert about == {"iterations_timed": 2, "bound_s": pytest.approx(0.12), "factor": 1.2, "set_by": "best.1"}
    assert "it had lost to best.1, by more than 20%" in record.notes[0]
    in_warmup = made_record(measurements=ranks_that_timed(0, 0), bound=BOUND)
    assert (in_warmup.stopped, json.loads(in_warmup.extra_json)["stopped"]["iterations_timed"]) == ("slow", 0)


@pytest.mark.parametrize(("ranks", "bound"), [((2, 2), None), ((2, None), BOUND), ((1, 2), BOUND)])
def test_it_is_not_ok_where_it_had_no_bound_or_its_ranks_disagree(ranks, bound):
    record = made_record(measurements=ranks_that_timed(*ranks), bound=bound)
    assert (record.outcome, record.stopped) == (Outcome.CONFIG_MISMATCH, None)
    whole = made_record(measurements=ranks_that_timed(None, None), bound=BOUND)
    assert (whole.outcome, whole.stopped, "stopped" in json.loads(whole.extra_json)) == (Outcome.OK, None, False)
