"""Each planned workload against its baseline: pass, fail or undecided, by the interval of its change."""

import pandas as pd
import pytest

from analysis.compare.certificate import Certificate, CheckedWorkload, certificate
from analysis.compare.comparison import CellPair, Change, Comparison, Noise, RunPair
from analysis.metrics import METRICS

METRIC = METRICS["tokens_per_second_per_gpu"]
PLAN = {"model": "8B", "nodes": 1, "gpus_per_node": 8, "sequence_length": 4096, "global_batch_tokens": 2**20}
PLAN |= {"dtype": "bf16", "compile": True, "params": "{}", "env": "{}", "recompute": "none", "pp_schedule": "1f1b"}
PLAN |= {"dp": 8, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "micro_batch_size": 1, "grad_accum": 32, "zero": 1}


def change(middle=0.0, reach=0.01, p=1.0):
    return Change(change=middle, low=middle - reach, high=middle + reach, p=p)


def pair(run_b, found):
    return RunPair(
        model="8B",
        nodes=1,
        layout={},
        run_a="old",
        run_b=run_b,
        value_a=100.0,
        value_b=90.0,
        change=found,
        verdict="same",
    )


def comparison(*runs):
    noise = Noise(deviation=0.01, freedom=9, estimated=True)
    return Comparison(metric=METRIC, level=0.01, noise=noise, conditions=(), cells=(), runs=runs, failing=())


def checked(outcomes, *runs, within=0.05, planned=None):
    """The workloads of a plan with a run for each outcome; None: it was not measured."""
    ids = [f"r{at}" for at in range(len(outcomes))]
    plan = pd.DataFrame(
        [PLAN | {"run_id": one} | more for one, more in zip(ids, planned or [{}] * len(ids), strict=True)]
    )
    ended = [(one, outcome) for one, outcome in zip(ids, outcomes, strict=True) if outcome]
    records = pd.DataFrame(ended, columns=["run_id", "outcome"]).assign(model="8B", nodes=1, message="why")
    return certificate(plan, records, comparison(*runs) if runs else None, within)


@pytest.mark.parametrize(("found", "verdict"), [
    (change(0.0), "pass"), (change(-0.03), "pass"), (change(-0.0399), "pass"), (change(-0.0401), "undecided"),
    (change(-0.05, 0.02), "undecided"), (change(-0.0599), "undecided"), (change(-0.0601), "fail"),
    (change(0.2), "pass"),
])  # fmt: skip
def test_the_whole_interval_decides(found, verdict):
    (one,) = checked(["ok"], pair("r0", found)).workloads
    assert (one.verdict, one.change, one.reason) == (verdict, found, "")
    assert (one.baseline, one.value) == (100.0, 90.0)


def test_an_interval_that_ends_at_the_limit_passes_and_none_fails_by_touching_it():
    touching = Change(change=0.0, low=-0.05, high=0.05, p=1.0)
    assert checked(["ok"], pair("r0", touching)).workloads[0].verdict == "pass"
    below = Change(change=-0.1, low=-0.15, high=-0.05, p=0.0)
    assert checked(["ok"], pair("r0", below)).workloads[0].verdict == "undecided"


@pytest.mark.parametrize(("outcomes", "verdict", "reason"), [
    (["ok", "hang"], "fail", "1 of 2 failed: hang why"), (["hang", "hang"], "fail", "2 of 2 failed: hang why"),
    (["ok", None], "undecided", "1 of 2 not measured"), (["ok", "ok"], "pass", ""),
])  # fmt: skip
def test_every_repeat_of_a_workload_must_have_worked(outcomes, verdict, reason):
    (one,) = checked(outcomes, pair("r0", change())).workloads
    assert (one.verdict, one.reason) == (verdict, reason)
    assert (one.change is None) is bool(reason)


@pytest.mark.parametrize(("outcomes", "reason"), [(["ok"], "not in the baseline"), ([None], "not measured")])
def test_without_a_pair_nothing_is_decided(outcomes, reason):
    (one,) = checked(outcomes).workloads
    assert (one.verdict, one.reason, one.change, one.baseline, one.value) == ("undecided", reason, None, None, None)


def test_workloads_are_distinguished_apart_by_their_configuration_and_sorted():
    found = checked(
        ["ok"] * 4, pair("r0", change()), planned=[{"nodes": 2}, {"nodes": 1}, {"nodes": 1, "tp": 2}, {"nodes": 2}]
    )
    assert [(one.nodes, one.layout["tp"], one.verdict) for one in found.workloads] == [
        (1, 1, "undecided"), (1, 2, "undecided"), (2, 1, "pass"),
    ]  # fmt: skip


def test_a_suite_passes_where_it_has_workloads_and_each_passes():
    one = {"model": "8B", "nodes": 1, "layout": {}}
    good, bad = CheckedWorkload(**one, verdict="pass"), CheckedWorkload(**one, verdict="undecided")
    assert Certificate(within=0.05, workloads=(good, good)).passed
    assert not Certificate(within=0.05, workloads=(good, bad)).passed
    assert not Certificate(within=0.05, workloads=()).passed
    suite = Certificate(within=0.05, workloads=(good, bad, good))
    assert [suite.count(verdict) for verdict in ("pass", "undecided", "fail")] == [2, 1, 0]
    assert suite.document()["workloads"][1]["verdict"] == "undecided"


def cell(best=None, typical=None, verdict="same"):
    return CellPair(model="8B", nodes=1, value_a=1.0, value_b=1.0, best=best, pairs=2, typical=typical, verdict=verdict)


def test_a_cell_is_slower_by_its_worst_significant_change():
    clear, chance = change(-0.1, p=0.001), change(-0.2, p=0.5)
    assert cell(clear, change(-0.05, p=0.01)).slowdown(0.01) == pytest.approx(0.1)
    assert cell(clear, chance).slowdown(0.01) == pytest.approx(0.1)
    assert cell(chance).slowdown(0.01) == 0
    assert cell(change(0.3, p=0.001)).slowdown(0.01) == 0
    cells = (cell(clear), cell(chance), cell(verdict="lost"), cell(change(0.1, p=0.0)))
    noise = Noise(deviation=0.01, freedom=9, estimated=True)
    found = Comparison(metric=METRIC, level=0.01, noise=noise, conditions=(), cells=cells, runs=(), failing=())
    assert found.slower_cells(0.1) == [cells[0], cells[2]]
    assert found.slower_cells(0.11) == [cells[2]]
    assert found.slower_cells(0.0) == [cells[0], cells[2]]
