"""Faults injected by real ranks on the local executor: each has its expected outcome, and the pilot continues."""

import json
import traceback

import pytest

from bench_workloads.simulated import Settings
from bench_workloads.simulated.faults import MESSAGES, act
from sweep.diagnose.diagnose import diagnose_text
from tests.support import driving
from tests.support.faults.simulated import EXPECTED

PARAMS = {"step_s": 0.05, "fault_rank": 1, "fault_iteration": 3, "fault_s": 600, "fault_code": 9}
TIMEOUTS = {"start": "20s", "first_iteration": "20s", "steady": "3s"}
SAID = ("oom_host", "nan", "import_error", "port_in_use", "disk_full", "nccl_error", "cuda_error", "config_error")
"""faults that differ from another of the sweep by what a rank prints or raises alone"""
MEASURED = [fault for fault in EXPECTED if fault not in SAID]


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """One sweep, one run per fault; its records by fault."""
    root = tmp_path_factory.mktemp("faults")
    keys = {"nodes": 2, "iterations": 3, "warmup_iterations": 2, "timeouts": TIMEOUTS}
    faults = [fault.strip('"') for fault in MEASURED]
    driving.launched(root, driving.simulated(**keys, params={**PARAMS, "fault": faults}))
    records = driving.records_of(root / "s")
    by_fault = {}
    for record in records:
        fault = json.loads(record["params_json"])["fault"] or '""'
        by_fault.setdefault(fault, []).append(record)
    return root / "s", by_fault


@pytest.mark.parametrize("fault", SAID)
def test_what_a_rank_prints_or_raises_has_its_outcome(fault):
    text = MESSAGES.get(fault, "").format(rank=1, gpu=1)
    if not text:
        with pytest.raises(Exception) as raised:  # noqa: PT011 (of any type: the text is what counts)
            act(fault, None, Settings())
        text = "".join(traceback.format_exception(raised.value))
    assert diagnose_text(text).outcome == EXPECTED[fault], text


@pytest.mark.parametrize("fault", MEASURED)
def test_a_fault_ends_with_its_outcome(faults, fault):
    _, by_fault = faults
    assert by_fault[fault]
    for record in by_fault[fault]:
        assert record["outcome"] == EXPECTED[fault], (record["message"], record["evidence"])


def test_a_hang_names_the_rank_that_stopped(faults):
    directory, by_fault = faults
    for fault in ("hang", "ignore_sigterm"):
        record = by_fault[fault][0]
        assert record["message"].startswith("rank 1 on local-0 in "), record["message"]
        log = (directory / "logs" / f"{record['run_id']}.1.log").read_text()
        assert "stacks before the kill" in log
        assert "faults.py" in log


def test_failures_have_no_metrics_and_successes_have(faults):
    _, by_fault = faults
    for fault, records in by_fault.items():
        for record in records:
            assert (record["tokens_per_second_per_gpu"] is not None) == (EXPECTED[fault] == "ok")


def test_nothing_is_left_running(faults):
    directory, _ = faults
    assert driving.wait_until_unmarked(directory, 10) == []


def test_one_pilot_did_it_all_and_every_claim_has_its_record(faults):
    directory, by_fault = faults
    assert len(driving.state_of(directory).pilots) == 1
    claims = {p.name for p in (directory / "claims").iterdir()}
    assert claims == {f"{r['run_id']}.{r['attempt']}" for records in by_fault.values() for r in records}
