"""`sweep certify`: real local sweeps, one of them slowed down, checked against a baseline."""

from __future__ import annotations

import json

import pytest

from analysis.compare import compare
from analysis.compare.certificate import CONFIGURATION, FAIL, PASS, UNDECIDED, certificate
from sweep.records.collect import write_results
from tests.support import driving
from tests.support.compared import noisy, results
from tests.support.made_records import made_record

SUITE = """\
name: suite
workload: simulated
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 1024
dtype: [fp32]
micro_batch_size: [1, 2]
iterations: 5
warmup_iterations: 1
repeats: 3
finalists: 0
strategy: exhaustive
params: {step_s: 1.0}
site: {gpu: cpu, gpus_per_node: 2, pilot_time: 10m}
"""


STEADY = {"run": 0.002, "iterations": 0.003}


def checked(now, planned=None):
    planned = now if planned is None else planned
    columns = planned.assign(**{name: None for name in CONFIGURATION if name not in planned})
    return certificate(columns, now.assign(message=now.get("message")), compare(noisy(1, **STEADY), now), 0.05)


def verdicts(**slower):
    found = checked(noisy(2, **STEADY, **slower))
    return {one.verdict for one in found.workloads}, found.passed


def test_a_workload_passes_fails_or_is_undecided_by_its_interval():
    assert verdicts() == ({PASS}, True)
    assert verdicts(slower="all", by=0.12) == ({FAIL}, False)
    seen, passed = verdicts(slower="all", by=0.05)
    assert UNDECIDED in seen
    assert not passed


def test_a_workload_that_fails_is_no_pass_and_has_its_reason():
    later = noisy(2, **STEADY).assign(message=None)
    later.loc[later["model"].eq("4B") & later["nodes"].eq(4), ["outcome", "message"]] = ["hang", "rank 3 timed out"]
    found = checked(later)
    failed = [one for one in found.workloads if one.verdict == FAIL]
    assert {(one.model, one.nodes, one.reason) for one in failed} == {("4B", 4, "1 of 1 failed: hang rank 3 timed out")}
    assert not found.passed


def test_what_was_not_measured_or_has_no_baseline_is_no_pass():
    whole = noisy(2, **STEADY)
    part = whole[whole["nodes"].ne(8)]
    found = checked(part, planned=whole)
    assert {one.reason for one in found.workloads if one.verdict == UNDECIDED} == {"not measured"}
    assert {one.nodes for one in found.workloads if one.reason} == {8}
    assert not found.passed
    other = certificate_without_baseline(whole)
    assert {one.reason for one in other.workloads if one.nodes == 8} == {"not in the baseline"}
    assert not other.passed


def certificate_without_baseline(now):
    good = noisy(1, **STEADY)
    columns = now.assign(**{name: None for name in CONFIGURATION if name not in now})
    compared = compare(good[good["nodes"].ne(8)], now)
    return certificate(columns, now.assign(message=None), compared, 0.05)


def test_a_suite_is_not_checked_against_itself(tmp_path):
    (tmp_path / "suite.yaml").write_text(SUITE)
    write_results(tmp_path / "s" / "results.parquet", [made_record()])
    words = ("--baseline", tmp_path / "s" / "results.parquet", "--dir", tmp_path / "s", "--executor", "local", "--yes")
    done = driving.run("certify", tmp_path / "suite.yaml", *words)
    assert done.returncode == 2
    assert "against its own results" in done.stderr


def test_a_baseline_of_another_suite_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "suite.yaml").write_text(SUITE)
    other = results(tmp_path / "other.parquet", 1.0)
    words = ("--dir", tmp_path / "s", "--executor", "local", "--yes")
    done = driving.run("certify", tmp_path / "suite.yaml", "--baseline", other, *words)
    assert done.returncode == 2
    assert "of the suite is measured in the baseline" in done.stderr
    assert not (tmp_path / "s").exists()


@pytest.mark.long
def test_real_local_sweeps_5_percent_slower_fail_and_1_percent_slower_pass(tmp_path):
    (tmp_path / "suite.yaml").write_text(SUITE)
    common = ("--executor", "local", "--yes")
    good = tmp_path / "good"
    assert driving.run("launch", tmp_path / "suite.yaml", "--dir", good, *common).returncode == 0
    found = {}
    for name, step_s in (("same", 1.0), ("one", 1.01), ("five", 1.0526)):
        words = ("--baseline", good, "--within", "3%", "-o", f"params.step_s={step_s}", "--dir", tmp_path / name)
        done = driving.run("certify", tmp_path / "suite.yaml", *words, *common, "--json")
        document = json.loads(done.stdout)
        found[name] = ({one["verdict"] for one in document["workloads"]}, done.returncode)
    assert found == {"same": ({"pass"}, 0), "one": ({"pass"}, 0), "five": ({"fail"}, 1)}
    for command in ("compare", "history"):
        slower = {}
        for name in found:
            done = driving.run(command, good, tmp_path / name, "--fail-if-slower", "3%")
            slower[name] = done.returncode
            assert (") *" in done.stdout) is (name == "five"), (command, name, done.stdout)
        assert slower == {"same": 0, "one": 0, "five": 1}, command
