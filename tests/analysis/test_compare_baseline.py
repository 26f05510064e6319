"""Each workload against its baseline: pass, fail or undecided, by the interval of its change."""

import pandas as pd
import pytest

from analysis.compare import baseline as module
from analysis.compare.baseline import CONFIGURATION, FAIL, NEW, PASS, UNDECIDED, Certificate, Workload, certify
from analysis.compare.noise import Change
from analysis.metrics import METRICS
from sweep.errors import SweepError
from tests.support.compared import noisy

RATE = METRICS["tokens_per_second_per_gpu"]
STEADY = {"run": 0.002, "iterations": 0.003}
GOOD = noisy(1, **STEADY)


def planned(records):
    """The plan of these runs."""
    return records.assign(**{name: None for name in CONFIGURATION if name not in records})


def checked(now, plan=None, **options):
    return certify(GOOD, now, plan, **{"within": 0.05, **options})


def verdicts(**slower):
    found = checked(noisy(2, **STEADY, **slower))
    return {one.verdict for one in found.workloads}, found.passed


def test_a_workload_passes_fails_or_is_undecided_by_its_interval():
    assert verdicts() == ({PASS}, True)
    assert verdicts(slower="all", by=0.12) == ({FAIL}, False)
    seen, passed = verdicts(slower="all", by=0.05)
    assert UNDECIDED in seen
    assert not passed


@pytest.mark.parametrize(("low", "high", "verdict"), [
    (-0.05, 0.05, PASS), (-0.0501, 0.05, UNDECIDED), (-0.2, -0.05, UNDECIDED), (-0.2, -0.0501, FAIL), (0.1, 0.2, PASS),
])  # fmt: skip
def test_the_whole_interval_decides_and_touching_the_limit_is_no_failure(low, high, verdict, monkeypatch):
    change = Change(change=(low + high) / 2, low=low, high=high, p=1.0)
    monkeypatch.setattr(module, "changes", lambda groups, *_: dict.fromkeys(groups, change))
    assert {(one.verdict, one.change, one.reason) for one in checked(noisy(2)).workloads} == {(verdict, change, "")}


def test_each_workload_has_its_values_and_they_are_in_order():
    now = noisy(2, **STEADY)
    found = checked(now)
    assert [(one.model, one.nodes) for one in found.workloads] == sorted(zip(now["model"], now["nodes"], strict=True))
    for one in found.workloads:
        here = (now["model"] == one.model) & (now["nodes"] == one.nodes)
        for name in ("tp", "zero", "dp"):
            here &= now[name] == one.layout[name]
        (at,) = now.index[here]
        assert (one.baseline, one.value) == (GOOD[RATE.name][at], now[RATE.name][at])


@pytest.mark.parametrize(("outcomes", "verdict", "reason"), [
    (["ok", "hang"], FAIL, "1 of 2 failed: hang why"), (["hang", "oom_cuda"], FAIL, "2 of 2 failed: hang why"),
    (["ok", None], UNDECIDED, "1 of 2 not measured"), ([None, None], UNDECIDED, "not measured"),
    (["ok", "cancelled"], UNDECIDED, "1 of 2 not measured"), (["ok", "ok"], PASS, ""),
])  # fmt: skip
def test_every_repeat_of_a_planned_workload_must_have_worked(outcomes, verdict, reason):
    one = noisy(2, **STEADY).iloc[:1].assign(message="why")
    rows = [one.assign(run_id=f"r{at}", outcome=outcome) for at, outcome in enumerate(outcomes)]
    now = pd.concat([row for row, outcome in zip(rows, outcomes, strict=True) if outcome] or [one.iloc[:0]])
    (found,) = checked(now, planned(pd.concat(rows))).workloads
    assert (found.verdict, found.reason, found.change is None) == (verdict, reason, bool(reason))


def test_without_a_plan_what_the_baseline_measured_is_a_workload_and_what_it_did_not_is_new():
    now = noisy(2, **STEADY)
    missing = checked(now[now["nodes"].ne(8)])
    assert {(one.nodes, one.verdict, one.reason) for one in missing.workloads if one.reason} == {
        (8, UNDECIDED, "not measured")
    }
    assert (len(missing.workloads), missing.passed) == (len(now), False)
    more = certify(GOOD[GOOD["nodes"].ne(8)], now, None, within=0.05)
    assert {(one.nodes, one.verdict) for one in more.workloads if one.reason} == {(8, NEW)}
    assert more.passed, "the baseline says nothing of these"
    changed = now.assign(env_json='{"NCCL_ALGO":"Tree"}')
    assert len(checked(changed).workloads) == len(now), "what each side has throughout makes no further workloads"


def test_a_plan_says_what_the_workloads_are():
    now = noisy(2, **STEADY)
    part = now[now["nodes"].ne(8)]
    assert len(checked(part, planned(part)).workloads) == len(part), "the baseline may have more"
    assert {one.nodes for one in checked(part, planned(now)).workloads if one.verdict == UNDECIDED} == {8}


def test_a_baseline_of_other_workloads_is_refused():
    now = noisy(2, **STEADY)
    with pytest.raises(SweepError, match=r"--baseline: none of the 16 runs is measured in the baseline"):
        checked(now[now["model"].eq("1B")].assign(sequence_length=17))
    mixed = now.assign(dtype=["fp8", "fp16"] * (len(now) // 2))
    for plan in (None, planned(mixed)):
        with pytest.raises(SweepError, match="is measured in the baseline"):
            checked(mixed, plan)
    assert checked(now.assign(dtype="fp8")).passed, "what each side has throughout is what is compared"


def test_what_failed_in_the_baseline_too_is_new():
    now, hangs = noisy(2, **STEADY), GOOD["nodes"].eq(8)
    before = GOOD.assign(outcome=GOOD["outcome"].mask(hangs, "hang"))
    later = now.assign(outcome=now["outcome"].mask(hangs, "hang"), message=None)
    for plan in (None, planned(later)):
        found = certify(before, later, plan, within=0.05)
        assert {(one.nodes, one.verdict, one.reason) for one in found.workloads if one.reason} == {
            (8, NEW, "1 of 1 failed: hang")
        }
        assert found.passed


def test_it_passes_where_the_baseline_has_workloads_and_each_passes():
    parts = {"model": "8B", "nodes": 1, "layout": {}, "baseline": None, "value": None, "change": None, "reason": ""}
    for seen, passed in (((PASS, PASS), True), ((PASS, NEW), True), ((NEW,), False), ((), False),
                         ((PASS, UNDECIDED), False), ((PASS, FAIL), False)):  # fmt: skip
        workloads = tuple(Workload(**parts, verdict=verdict) for verdict in seen)
        found = Certificate(metric=RATE, within=0.05, simulated=False, workloads=workloads)
        assert found.passed is passed, seen
        assert [one["verdict"] for one in found.document()["workloads"]] == list(seen)
