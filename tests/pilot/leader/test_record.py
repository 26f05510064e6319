"""From an attempt's result to its record."""

import json

import pytest

from sweep.contract import Measurement
from sweep.outcomes import Outcome
from sweep.pilot.leader.record import findings_of
from sweep.pilot.leader.watchdog import StopReason
from sweep.records.collect import table_of
from sweep.records.record import problems, record_from
from sweep.records.schema import OVERSUBSCRIBED
from tests.support.made_records import as_json, made_record
from tests.support.pilot_parts import recorded, result_of

NUMBERS_THAT_ARE_NONE = [
    {"step_times_s": "not a list"},
    {"step_times_s": [None] * 5},
    {"peak_allocated_bytes": "12 GB"},
    {"peak_allocated_bytes": 2**63},
    {"peak_reserved_bytes": True},
    {"losses": [1, "2", 3, 4, 5]},
    {"peak_allocated_bytes": "x" * 1_000_000},
]


@pytest.mark.parametrize("values", NUMBERS_THAT_ARE_NONE, ids=lambda values: f"{values}"[:40])
def test_a_value_of_the_wrong_type_makes_the_attempt_unknown_and_keeps_the_table_readable(existing, values):
    """One such value in the journal, and no collect would ever read the sweep again."""
    measurement = Measurement(**{"step_times_s": [0.1] * 5, **values})
    record = recorded(existing, result_of(Outcome.OK, measurement)).record
    assert record.outcome == "unknown"
    assert ("cannot be recorded" in record.message) or "step_times_s" in values
    assert len(record.message) < 2000
    assert record.step_time_median_s is None or "step_times_s" not in values
    assert problems(record) == []
    assert table_of([record_from(as_json(record))]).num_rows == 1


def test_a_whole_number_of_a_column_of_doubles_is_read_as_a_double(existing):
    """Arrow refuses one beyond 2^53 that is not a double."""
    measurement = Measurement(step_times_s=[0.1] * 5, losses=[2**60 + 1] * 5)
    record = recorded(existing, result_of(Outcome.OK, measurement)).record
    assert record.outcome == "ok"
    assert table_of([record_from(as_json(record))])["losses"].to_pylist() == [[2.0**60] * 5]


def test_a_failure_keeps_its_outcome_where_its_numbers_are_none_and_the_reason_names_them(existing):
    """An out-of-memory that gives its peak as text is still an out-of-memory."""
    measurement = Measurement(step_times_s=[0.1] * 5, peak_allocated_bytes="12 GB")
    record = recorded(existing, result_of(Outcome.OOM_CUDA, measurement)).record
    assert problems(record) == []
    assert record.outcome == "oom_cuda"
    assert record.peak_memory_bytes is None
    assert record.message.startswith("why; ")
    assert "peak_memory_bytes must be int64, not '12 GB'" in record.message


def test_the_record_states_what_disturbed_the_attempt_and_once_what_the_workload_finds_odd(existing):
    odd = Measurement(step_times_s=[0.1] * 5, extra={"notes": ["the trainer says 2, its steps make 3"]})
    result = result_of(Outcome.OK, odd)
    result.state.stopped_s = 39.04
    record = recorded(existing, result).record
    extra = json.loads(record.extra_json)
    assert (record.outcome, extra["concurrent_with"], extra["stopped_s"]) == ("ok", ["other.1"], 39.0)
    assert any("stopped for 39 s" in note for note in record.notes)
    assert record.notes.count("the trainer says 2, its steps make 3") == 1


@pytest.mark.parametrize(("runnable", "noted"), [(3, 1), (2, 0)])
def test_a_host_with_more_work_than_cores_is_noted_and_does_not_make_a_record_suspect(existing, runnable, noted):
    load = {"host_runnable_tasks": runnable, "host_cores": 2}
    busy = Measurement(step_times_s=[0.1] * 5, extra=load)
    record = recorded(existing, result_of(Outcome.OK, busy)).record
    assert record.notes.count(OVERSUBSCRIBED) == noted
    assert not record.suspect


@pytest.mark.parametrize(("limit_s", "outcome"), [(900.0, "time_limit"), (850.0, "time_limit"), (300.0, "preempted")])
def test_a_run_longer_than_a_whole_pilot_is_not_retried_indefinitely(existing, limit_s, outcome):
    record = recorded(existing, result_of(Outcome.TIME_LIMIT), limit_s=limit_s).record
    assert record.outcome == outcome
    assert ("pilot_time" in record.message) is (limit_s == 850.0)


def test_only_the_user_or_the_scheduler_cancels(existing):
    stopping = StopReason(Outcome.CANCELLED, "cancelled by the user")
    cancelled = result_of(Outcome.CANCELLED)
    assert recorded(existing, cancelled, stopping).record.outcome == "cancelled"
    assert recorded(existing, cancelled).record.outcome == "unknown"


def test_attempts_that_end_with_the_whole_job_accuse_no_node(existing):
    stopping = StopReason(Outcome.PREEMPTED, "the pilot's job received SIGTERM")
    lost = recorded(existing, result_of(Outcome.NETWORK), stopping, executor="slurm").record
    assert lost.outcome == "preempted"
    accusing = result_of(Outcome.NODE_FAIL)
    accusing.state.lost_nodes.append("n1")
    recording = recorded(existing, accusing, stopping, executor="slurm")
    assert (recording.record.outcome, recording.accused, recording.slow_node) == ("preempted", (), None)
    recording = recorded(existing, accusing, executor="slurm")
    assert (recording.record.outcome, recording.accused) == ("node_fail", ("n1",))


def test_findings_reach_the_record():
    nccl = "".join(f"{host}:1:1 [0] NCCL INFO Using network Socket\n" for host in ("n1", "n2"))
    extra = {
        "allocator": {"reserved_bytes.all.peak": 100, "inactive_split_bytes.all.peak": 40},
        "allocator_new": {"num_alloc_retries": 3, "num_ooms": 0, "num_device_alloc": 5, "num_device_free": 5},
        "device_memory_not_torch_bytes": 1 << 30,
    }
    facts, notes, suspect = findings_of([nccl, ""], [{}, extra])
    record = made_record(facts=facts, notes=tuple(notes), suspect=suspect)
    assert any("TCP sockets" in note for note in record.notes)
    assert any("rank 1: Memory pressure" in note for note in record.notes)
    assert record.suspect, "a timing under memory pressure is not valid"
    retained = json.loads(record.extra_json)
    assert retained["allocator_verdict"]["rank"] == 1
    assert retained["nccl"]["network"] == "Socket"
    assert findings_of(["hello"], [{}]) == ({}, [], False)
