"""Slow schedulers, many ended pilots, pilots that ended while no launcher ran, and jobs that outlive their sweep."""

import os

import pytest

from sweep.executors.executor import JobState, JobStatus
from sweep.launcher.launcher import Launcher
from sweep.launcher.lost_attempts import mark_attempts_lost
from sweep.launcher.watch import Watch
from sweep.state.events import (
    AttemptStarted,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotSubmitted,
    RerunRequested,
    SessionAlive,
)
from sweep.store import journal as journals
from sweep.store import lease
from sweep.store.directory import SweepDir
from sweep.store.journal import JournalReader
from sweep.store.lease import LeaseLostError
from tests.support import driving
from tests.support.launchers import Clock, Scheduler, written
from tests.support.made_sweeps import made

INTENT = PilotIntended(time=1.0, pilot="p0001", token="t", nodes=1, time_limit_s=60)
SUBMITTED = PilotSubmitted(time=2.0, pilot="p0001", job_id="7")


@pytest.fixture
def existing(tmp_path):
    return made(tmp_path / "s")


def test_a_slow_scheduler_is_asked_less_often(existing, monkeypatch):
    """It takes 12 s to answer: at most a tenth of the time is spent so."""
    written(existing.directory, "launcher-earlier", INTENT, SUBMITTED)
    launcher, clock = Launcher(existing), Clock(monkeypatch, "sweep.launcher.watch")
    launcher.executor = Scheduler(JobState.PENDING, lambda: setattr(clock, "now", clock.now + 12.0))
    watch, began = Watch(launcher), clock.now
    while clock.now < began + 600:
        watch.check()
        clock.now += 0.5
    assert launcher.executor.polls <= 600 / (12 / 0.1) + 1
    launcher.close()


def test_a_launcher_shows_that_it_lives_before_it_waits_for_the_scheduler(existing, monkeypatch):
    written(existing.directory, "launcher-earlier", INTENT, SUBMITTED)
    launcher = Launcher(existing)
    launcher.executor, launcher.heartbeat_at = Scheduler(JobState.PENDING), 0.0
    seen = []
    launcher.executor.wait = lambda: seen.extend(driving.events_of(existing.directory.path, SessionAlive))
    Watch(launcher).check()
    assert len(seen) == 1
    launcher.close()


def test_lost_is_written_under_a_checked_lease_only(existing):
    """Another launcher took over while this one waited for the scheduler's answer."""
    directory, run_id = existing.directory, existing.runs[0].run_id
    written(directory, "launcher-earlier", INTENT, SUBMITTED)
    written(directory, "pilot-p0001", AttemptStarted(time=3.0, pilot="p0001", run_id=run_id, attempt=1, nodes=("n1",)))
    launcher = Launcher(existing)
    launcher.refresh()
    lease.take(directory, takeover=True)
    with pytest.raises(LeaseLostError):
        mark_attempts_lost(launcher, launcher.sweep.sweep_state.pilots["p0001"], JobStatus(state=JobState.GONE))
    assert driving.records_of(directory.path) == []
    assert driving.events_of(directory.path, PilotGone) == []


def test_500_ended_pilots_cost_under_20_metadata_operations_a_second(tmp_path, monkeypatch):
    sweep = SweepDir(tmp_path / "s")
    sweep.create_skeleton()
    for number in range(500):
        name = f"p{number:04d}"
        last = PilotEnded if number % 2 else PilotAlive  # the others died without a last line
        extra = {"reason": "done"} if last is PilotEnded else {}
        written(sweep, f"pilot-{name}", last(time=1.0, pilot=name, **extra)).close()
    living = written(sweep, "pilot-p0500", PilotAlive(time=2.0, pilot="p0500"))
    clock, reader = Clock(monkeypatch, "sweep.store.journal"), JournalReader(sweep)
    assert len(reader.new_events()) == 501
    for _ in range(150):  # a minute until the dead ones are known to rest
        clock.now += 0.5
        reader.new_events()
    operations = []
    for name in ("stat", "scandir", "open"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *words, real=real, **how: operations.append(1) or real(*words, **how))
    read = 0
    for second in range(300):
        for _ in range(2):
            clock.now += 0.5
            read += len(reader.new_events())
        if second % 10 == 0:
            living.append(PilotAlive(time=3.0 + second, pilot="p0500"))
    assert read >= 29
    assert len(operations) / 300 < 20
    assert len(operations) > 300, "they were counted"
    written(sweep, "rerun-1", RerunRequested(time=9.0, run_id="r", after=1))
    assert len(reader.new_events()) == 1, "a new journal is read at once"
    monkeypatch.undo()


def test_a_late_line_of_a_resting_journal_is_read_when_all_is_asked_for(tmp_path, monkeypatch):
    sweep = SweepDir(tmp_path / "s")
    sweep.create_skeleton()
    journal = written(sweep, "pilot-p0001", PilotAlive(time=1.0, pilot="p0001"))
    clock, reader = Clock(monkeypatch, "sweep.store.journal"), JournalReader(sweep)
    reader.new_events()
    for _ in range(2):
        clock.now += journals.RESTS_S + 1
        reader.new_events()
    journal.append(PilotAlive(time=2.0, pilot="p0001"))
    assert reader.new_events() == []
    assert len(reader.new_events(resting=True)) == 1
    journal.append(PilotAlive(time=3.0, pilot="p0001"))
    assert len(reader.new_events()) == 1, "it rests no longer"


def test_a_job_that_was_requeued_after_its_pilot_ended_is_cancelled_with_the_sweep(existing):
    gone = PilotGone(time=3.0, pilot="p0001", word="ENDED")
    written(existing.directory, "launcher-earlier", INTENT, SUBMITTED, gone)
    launcher = Launcher(existing, executor=Scheduler(JobState.PENDING))
    watch = Watch(launcher)
    watch.cancel_requeued()
    assert launcher.executor.cancelled == ["7"]
    launcher.executor = running = Scheduler(JobState.RUNNING)
    watch.cancel_requeued()
    assert running.cancelled == [], "it ends by itself within seconds"
    launcher.close()
