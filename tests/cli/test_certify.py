"""`sweep certify`: real local sweeps, one of them slowed down, checked against a baseline."""

from __future__ import annotations

import json

import pytest

from analysis.compare import compare
from analysis.compare.certificate import FAIL, PASS, UNDECIDED, certificate
from tests.analysis.test_compare import noisy
from tests.support import driving

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


def verdicts(**slower):
    steady = {"run": 0.002, "iterations": 0.003}
    found = certificate(compare(noisy(1, **steady), noisy(2, **steady, **slower)), 0.05)
    return {one.verdict for one in found.workloads}, found.passed


def test_a_workload_passes_fails_or_is_undecided_by_its_interval():
    assert verdicts() == ({PASS}, True)
    assert verdicts(slower="all", by=0.12) == ({FAIL}, False)
    seen, passed = verdicts(slower="all", by=0.05)
    assert UNDECIDED in seen
    assert not passed


def test_a_workload_that_no_longer_runs_fails_with_its_reason():
    later = noisy(2)
    later.loc[later["model"].eq("4B") & later["nodes"].eq(4), ["outcome", "message"]] = ["hang", "rank 3 timed out"]
    found = certificate(compare(noisy(1), later), 0.05)
    failed = [one for one in found.workloads if one.verdict == FAIL]
    assert {(one.model, one.nodes, one.value, one.reason) for one in failed} == {
        ("4B", 4, None, "hang rank 3 timed out")
    }
    assert not found.passed


def test_a_baseline_of_another_suite_is_refused_before_anything_is_measured(tmp_path):
    from tests.cli.test_compare import results

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
