"""The time line's tables: who held which node when, and when each attempt began, measured and ended."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from sweep.outcomes import Outcome
from sweep.records.collect import collect
from sweep.state.events import (
    AttemptStarted,
    NodeBad,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    Recorded,
    SessionAlive,
)
from tests.support.made_records import made_record, made_run, made_sweep, write_journal

TIMES = {"start_s": 2.0, "first_iteration_s": 1.0, "measure_s": 4.0, "teardown_s": 0.5}


@pytest.fixture
def sweep(tmp_path):
    return made_sweep(tmp_path / "s")


def table(sweep, name):
    return pq.read_table(sweep.path / f"{name}.parquet").to_pylist()


def intent(pilot="p1", time=90.0):
    return PilotIntended(time=time, pilot=pilot, token=pilot, nodes=2, time_limit_s=600)


def started(pilot="p1", nodes=("n1", "n2"), time=100.0):
    return PilotStarted(time=time, pilot=pilot, job_id="7", nodes=tuple(nodes))


def begun(run, nodes, time, attempt=1, pilot="p1"):
    return AttemptStarted(time=time, pilot=pilot, run_id=run.run_id, attempt=attempt, nodes=tuple(nodes))


def ended(run, nodes, start, end, outcome=Outcome.OK, attempt=1, pilot="p1", accused=()):
    record = made_record(
        run,
        outcome=outcome,
        attempt=attempt,
        pilot=pilot,
        started_at=start,
        ended_at=end,
        **TIMES,
        node_names=nodes,
    )
    return Recorded(time=end, pilot=pilot, record=record, accused=accused)


def test_a_pilots_nodes_are_listed_from_intent_to_end(sweep):
    gone = PilotGone(time=140.0, pilot="p1", word="ENDED", reason="x")
    write_journal(sweep, "launcher-1", [intent(), intent("p2", 95.0), gone])
    last = PilotEnded(time=130.0, pilot="p1", reason="no remaining run fits")
    write_journal(sweep, "pilot-p1", [started(), last])
    collect(sweep)
    first, second, waiting = table(sweep, "pilots")
    assert (first["node"], second["node"]) == ("n1", "n2")
    for row in (first, second):
        assert (row["intended_at"], row["allocated_at"], row["ended_at"], row["gone_at"]) == (90, 100, 130, 140)
        assert (row["heard_at"], row["time_limit_s"], row["job_id"]) == (130, 600, "7")
        assert row["reason"] == "no remaining run fits"
    assert (waiting["pilot"], waiting["node"], waiting["allocated_at"]) == ("p2", None, None)


def test_an_unresponsive_pilot_has_the_time_of_its_last_heartbeat(sweep):
    alive = [PilotAlive(time=100.0 + 10 * n, pilot="p1") for n in range(4)]
    write_journal(sweep, "pilot-p1", [started(), *alive])
    write_journal(sweep, "launcher-1", [SessionAlive(time=500.0)])
    collect(sweep)
    assert {(r["heard_at"], r["ended_at"], r["gone_at"]) for r in table(sweep, "pilots")} == {(130.0, None, None)}


def test_concurrent_attempts_have_their_own_nodes_and_times(sweep):
    left, right = made_run(), made_run(model="3B")
    write_journal(sweep, "pilot-p1", [started(), begun(left, ["n1"], 101.0), begun(right, ["n2"], 102.0)])
    write_journal(sweep, "pilot-p1", [ended(right, ["n2"], 102.0, 110.0)])
    collect(sweep)
    done, runs = table(sweep, "timeline")
    assert (done["model"], done["node_names"], done["outcome"]) == ("3B", ["n2"], "ok")
    at = [done[name] for name in ("started_at", "first_at", "steady_at", "measured_at", "ended_at")]
    assert at == [102.0, 104.0, 105.0, 109.0, 110.0]
    assert (runs["run_id"], runs["node_names"], runs["started_at"]) == (left.run_id, ["n1"], 101.0)
    assert (runs["outcome"], runs["ended_at"]) == (None, None)


def test_an_attempt_that_ran_at_one_collect_is_closed_at_the_next(sweep):
    run = made_run()
    write_journal(sweep, "pilot-p1", [started(), begun(run, ["n1", "n2"], 101.0)])
    collect(sweep)
    write_journal(sweep, "pilot-p1", [ended(run, ["n1", "n2"], 101.0, 110.0)])
    assert collect(sweep).new == 1
    (row,) = table(sweep, "timeline")
    assert (row["outcome"], row["ended_at"]) == ("ok", 110.0)


def test_a_node_that_failed_is_lost_from_then_on_unless_it_ran_again(sweep):
    run = made_run()
    dead = ended(run, ["n1", "n2"], 101.0, 110.0, Outcome.NODE_FAIL, accused=("n2",))
    unclean = NodeBad(time=111.0, pilot="p1", node="n1", reason="not clean")
    write_journal(sweep, "pilot-p1", [started(), begun(run, ["n1", "n2"], 101.0), dead, unclean])
    collect(sweep)
    assert {r["node"]: r["lost_at"] for r in table(sweep, "pilots")} == {"n1": 111.0, "n2": 110.0}
    write_journal(sweep, "pilot-p1", [begun(run, ["n2"], 120.0, attempt=2)])
    write_journal(sweep, "launcher-1", [NodeBad(time=1.0, node="n2", reason="the user's word")])
    collect(sweep)
    assert {r["node"]: r["lost_at"] for r in table(sweep, "pilots")} == {"n1": 111.0, "n2": None}


@pytest.mark.parametrize(("reason", "reported"), [("NonZeroExitCode", "NonZeroExitCode"), ("", "FAILED")])
def test_a_pilot_that_reported_no_reason_has_the_schedulers_reason_or_else_its_state(sweep, reason, reported):
    write_journal(sweep, "launcher-1", [intent(), PilotGone(time=140.0, pilot="p1", word="FAILED", reason=reason)])
    write_journal(sweep, "pilot-p1", [started()])
    collect(sweep)
    assert {row["reason"] for row in table(sweep, "pilots")} == {reported}


def test_a_pilots_own_reason_stays_when_the_scheduler_reports_its_end_later(sweep):
    write_journal(sweep, "pilot-p1", [started(), PilotEnded(time=130.0, pilot="p1", reason="no remaining run fits")])
    collect(sweep)
    write_journal(sweep, "launcher-1", [PilotGone(time=140.0, pilot="p1", word="COMPLETED")])
    collect(sweep)
    assert {row["reason"] for row in table(sweep, "pilots")} == {"no remaining run fits"}


@pytest.mark.parametrize(("attempts_end", "lost_at"), [(110.0, 110.0), (None, 125.0)])
def test_a_node_is_lost_at_its_attempts_end_and_at_the_records_time_where_that_is_unknown(sweep, attempts_end, lost_at):
    record = replace(ended(made_run(), ["n1", "n2"], 101.0, 110.0, Outcome.NODE_FAIL).record, ended_at=attempts_end)
    recorded = Recorded(time=125.0, pilot="p1", record=record, accused=("n2",))
    write_journal(sweep, "pilot-p1", [started(), recorded])
    collect(sweep)
    assert {r["node"]: r["lost_at"] for r in table(sweep, "pilots")} == {"n1": None, "n2": lost_at}


@pytest.mark.parametrize("cut", range(1, 8))
def test_bit_by_bit_is_as_at_once(tmp_path, cut):
    one, two = made_run(), made_run(model="3B")
    events = [
        ("launcher-1", intent()),
        ("launcher-1", PilotSubmitted(time=91.0, pilot="p1", job_id="7")),
        ("pilot-p1", started()),
        ("pilot-p1", begun(one, ["n1"], 101.0)),
        ("pilot-p1", begun(two, ["n2"], 102.0)),
        ("pilot-p1", ended(one, ["n1"], 101.0, 108.0, Outcome.NODE_FAIL, accused=("n1",))),
        ("pilot-p1", PilotAlive(time=109.0, pilot="p1")),
        ("launcher-1", PilotGone(time=200.0, pilot="p1", word="NODE_FAIL")),
    ]
    bits, whole = made_sweep(tmp_path / "bits"), made_sweep(tmp_path / "whole")
    for at, (journal, event) in enumerate(events):
        write_journal(bits, journal, [event])
        write_journal(whole, journal, [event])
        if at == cut:
            collect(bits)
    collect(bits)
    collect(whole)
    for name in ("pilots", "timeline", "results"):
        assert table(bits, name) == table(whole, name)


@pytest.mark.parametrize("name", ["pilots", "timeline"])
def test_a_table_that_is_missing_or_of_another_collect_is_rebuilt(sweep, name):
    file = sweep.path / f"{name}.parquet"
    run = made_run()
    write_journal(sweep, "pilot-p1", [started(), begun(run, ["n1"], 101.0)])
    collect(sweep)
    earlier = file.read_bytes()
    write_journal(sweep, "pilot-p1", [ended(run, ["n1"], 101.0, 110.0)])
    collect(sweep)
    expected = table(sweep, name)
    file.write_bytes(earlier)
    assert collect(sweep).new == 1
    assert table(sweep, name) == expected
    file.unlink()
    assert collect(sweep).new == 1
    assert table(sweep, name) == expected
