"""What a launcher tolerates: claims and lines that appear late, a file system that hangs, other launchers."""

import errno
import time
from pathlib import Path

import pytest

from sweep.executors.executor import JobState, JobStatus
from sweep.executors.slurm_states import job_state
from sweep.launcher.launcher import Launcher
from sweep.launcher.loop import Loop
from sweep.launcher.lost_attempts import mark_attempts_lost, mark_late_attempts_lost
from sweep.launcher.pilots_wanted import PATIENCE_S, Capacity, pilots_wanted
from sweep.launcher.watch import Watch
from sweep.outcomes import Outcome
from sweep.state.events import (
    AttemptStarted,
    CancelRequested,
    PilotAlive,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    PilotUnresponsive,
)
from sweep.store.directory import Claim, try_claim
from sweep.store.journal import Journal, JournalReader
from tests.support import driving
from tests.support.launchers import Clock, Scheduler, written
from tests.support.made_records import made_record, record_event
from tests.support.made_sweeps import GRID, made, pilot_wrote

INTENT = PilotIntended(time=1.0, pilot="p0001", token="t", nodes=1, time_limit_s=60)
SUBMITTED = PilotSubmitted(time=2.0, pilot="p0001", job_id="7")
STARTED = PilotStarted(time=2.0, pilot="p0001", job_id="7", nodes=("n1",))
ALIVE = PilotAlive(time=3.0, pilot="p0001")
GONE = PilotGone(time=2.0, pilot="p0001", word="COMPLETED")


@pytest.mark.parametrize(("began", "nodes"), [(False, []), (True, ["n1"])], ids=["a claim", "a line"])
def test_what_is_seen_of_an_attempt_only_after_its_pilot_was_closed_marks_it_lost(existing, began, nodes):
    """A directory read from a cache: the run must not stay claimed indefinitely."""
    directory, run_id = existing.directory, existing.runs[0].run_id
    written(directory, "launcher-earlier", INTENT, GONE)
    if began:
        started = AttemptStarted(time=1.0, pilot="p0001", run_id=run_id, attempt=1, nodes=("n1",))
        written(directory, "pilot-p0001", started)
    else:
        try_claim(directory, run_id, 1, Claim(pilot="p0001", job_id="7", time=5.0))
    launcher = Launcher(existing)
    Watch(launcher).check()
    launcher.close()
    (lost,) = driving.records_of(directory.path)
    assert (lost["run_id"], lost["attempt"], lost["outcome"], lost["node_names"]) == (run_id, 1, "lost", nodes)
    assert driving.state_of(directory.path).run(run_id).next_attempt() == 2


def test_a_pilot_that_never_starts_is_seen_to_be_late_though_another_hosts_clock_is_hours_ahead(existing):
    """Its intent has the launcher's own time, and all the same comes after what the launcher had read."""
    ahead, now = time.time() + 5 * 3600, time.time()
    written(existing.directory, "cancel-1", CancelRequested(time=ahead))
    launcher = Launcher(existing)
    launcher.write(PilotIntended(time=now, pilot="p0001", token="t", nodes=2, time_limit_s=60))
    launcher.close()
    sweep_state = driving.state_of(existing.directory.path)
    assert not sweep_state.cancelled
    pilot = sweep_state.pilots["p0001"]
    assert (pilot.intended_at, pilot.intent_order > ahead) == (now, True)
    for late_s, wanted in ((PATIENCE_S - 1, []), (PATIENCE_S + 1, [1])):
        capacity = Capacity(max_pilots=4, pilot_time_s=600, run_s=60, now=now + late_s)
        assert [one.nodes for one in pilots_wanted(existing.runs, sweep_state, capacity)] == wanted


def test_attempts_of_an_open_pilot_are_not_marked_lost(existing):
    directory, run_id = existing.directory, existing.runs[0].run_id
    written(directory, "launcher-earlier", INTENT, PilotSubmitted(time=2.0, pilot="p0001", job_id="1:1:x"))
    written(directory, "pilot-p0001", AttemptStarted(time=1.0, pilot="p0001", run_id=run_id, attempt=1, nodes=("n1",)))
    launcher = Launcher(existing)
    mark_late_attempts_lost(launcher)
    assert not driving.records_of(directory.path)
    mark_attempts_lost(
        launcher, launcher.sweep.sweep_state.pilots["p0001"], JobStatus(state=JobState.GONE, word="FAILED")
    )
    mark_late_attempts_lost(launcher)
    assert len(driving.records_of(directory.path)) == 1
    launcher.close()


@pytest.mark.parametrize(("word", "started", "reported"), [
    ("FAILED", False, True), ("FAILED", True, False), ("CANCELLED", False, False), ("COMPLETED", False, False),
])  # fmt: skip
def test_a_pilot_that_failed_before_it_started_is_reported_with_its_last_output(
    existing, capsys, monkeypatch, word, started, reported
):
    directory = existing.directory
    directory.pilot("p0001").mkdir()
    (directory.pilot("p0001") / "stderr").write_text("slurm_script: line 26: /nope/python: No such file\n")
    (directory.pilot("p0001") / "stdout").touch()
    written(directory, "launcher-earlier", INTENT, PilotSubmitted(time=2.0, pilot="p0001", job_id="7"))
    if started:
        written(directory, "pilot-p0001", PilotStarted(time=3.0, pilot="p0001", job_id="7", nodes=("n1",)))
    launcher = Launcher(existing)
    launcher.executor, launcher.local = Scheduler(), True
    answer = JobStatus(state=JobState.GONE, word=word)
    monkeypatch.setattr(launcher.executor, "poll", lambda job_ids: dict.fromkeys(job_ids, answer))
    Watch(launcher).check()
    assert not launcher.open_pilots
    expected = (
        "pilot p0001 ended before it started; its last output: slurm_script: line 26: /nope/python: No such file\n"
    )
    assert capsys.readouterr().err == (expected if reported else "")


class CachedAttributes:
    """NFS with a long actimeo: another host's file has the size of the last poll, until it is opened."""

    def __init__(self, monkeypatch):
        self._cached = {}
        self.opened = []
        stat, opened = Path.stat, Path.open

        def cached_stat(path, **options):
            if not path.name.startswith("pilot-"):  # what this host writes itself it knows
                return stat(path, **options)
            return self._cached.setdefault(path, stat(path, **options))

        def asking_open(path, *arguments, **options):
            self._cached.pop(path, None)
            self.opened.append(path.name)
            return opened(path, *arguments, **options)

        monkeypatch.setattr(Path, "stat", cached_stat)
        monkeypatch.setattr(Path, "open", asking_open)


def watched(existing, monkeypatch, state):
    """A pilot whose last heartbeat is old, read over NFS by a launcher; its journal; the watch's clock."""
    directory = existing.directory
    written(directory, "launcher-earlier", INTENT, SUBMITTED)
    journal = Journal(directory.journal("pilot-p0001"))
    for event in (STARTED, ALIVE):
        journal.append(event)
    nfs, clock = CachedAttributes(monkeypatch), Clock(monkeypatch, "sweep.launcher.watch")
    launcher = Launcher(existing)
    launcher.executor, launcher.local = Scheduler(state), False
    watch = Watch(launcher)
    watch.check()
    launcher.refresh()  # from here on NFS keeps the journal's size
    clock.now += 700
    nfs.opened.clear()
    return watch, launcher, journal, nfs, clock


@pytest.mark.parametrize("lives", [True, False])
def test_a_pilot_has_timed_out_only_if_its_opened_journal_shows_it(existing, monkeypatch, lives):
    watch, launcher, journal, nfs, clock = watched(existing, monkeypatch, JobState.RUNNING)
    if lives:
        journal.append(ALIVE)
    watch.check()
    assert launcher.executor.cancelled == ([] if lives else ["7"])
    nfs.opened.clear()
    clock.now += 40
    watch.check()
    assert nfs.opened == [], "while a pilot is not under suspicion its journal is opened only where it grew"
    assert len(driving.events_of(existing.directory.path, PilotUnresponsive)) == (0 if lives else 1)
    launcher.close()


def test_a_suspended_pilot_is_not_unresponsive_and_its_time_begins_when_it_continues(existing, monkeypatch):
    """Its processes are stopped (`scontrol suspend`, gang scheduling): they cannot write heartbeats."""
    watch, launcher, _, _, clock = watched(existing, monkeypatch, job_state("SUSPENDED"))
    for state in [JobState.SUSPENDED] * 100 + [JobState.RUNNING]:
        launcher.executor.state = state
        watch.check()
        clock.now += 15  # the interval of polls
    assert launcher.executor.cancelled == []
    clock.now += 10_000
    watch.check()
    assert launcher.executor.cancelled == ["7"], "it continued, and its leader did not"
    launcher.close()


def test_the_last_lines_of_a_gone_pilot_are_read_before_it_is_marked_lost(existing, monkeypatch):
    watch, launcher, journal, *_ = watched(existing, monkeypatch, JobState.GONE)
    run_id = existing.runs[0].run_id
    try_claim(existing.directory, run_id, 1, Claim(pilot="p0001", job_id="7", time=5.0))
    record = made_record(existing.runs[0].run(), pilot="p0001", started_at=5.0, ended_at=6.0)
    journal.append(record_event(record, 6.0))
    watch.check()
    assert launcher.sweep.sweep_state.pilots["p0001"].gone is not None
    (found,) = driving.records_of(existing.directory.path)
    assert found["outcome"] == "ok", "not lost"
    launcher.close()


class EnoughError(Exception):
    """The launcher has polled once."""


@pytest.mark.parametrize(("reading", "timeouts_reset"), [("swift", False), ("slow", True), ("refused", True)])
def test_missing_heartbeats_do_not_count_while_the_launcher_waits_for_the_file_system(
    existing, monkeypatch, reading, timeouts_reset
):
    """They cannot write heartbeats either; their healthy jobs must not be cancelled when it answers again."""
    monkeypatch.setattr("sweep.launcher.loop.HUNG_S", 0.05)
    monkeypatch.setattr("sweep.launcher.loop.REFUSED_S", 0.0)

    def poll(_sweep):
        raise EnoughError

    clock, scheduler = Clock(monkeypatch, "sweep.launcher.watch"), Scheduler(JobState.RUNNING)
    written(existing.directory, "launcher-earlier", INTENT, SUBMITTED)
    written(existing.directory, "pilot-p0001", STARTED, ALIVE)
    launcher = Launcher(existing, executor=scheduler)
    loop = Loop(launcher, poll)
    loop.step()
    clock.now += 700
    trouble, read = [reading], JournalReader.new_events

    def new_events(reader, **how):
        trouble_now = trouble.pop() if trouble else "swift"
        if trouble_now == "refused":
            raise FileNotFoundError
        time.sleep(0.1 * (trouble_now == "slow"))
        return read(reader, **how)

    monkeypatch.setattr(JournalReader, "new_events", new_events)
    with pytest.raises(EnoughError):
        loop.run()
    assert scheduler.cancelled == ([] if timeouts_reset else ["7"])
    launcher.close()


def test_a_terminal_that_is_gone_hides_no_unresponsive_pilot(existing, monkeypatch):
    """Of a launcher that outlives it (`disown`), each line is refused."""
    monkeypatch.setattr("sweep.launcher.loop.REFUSED_S", 0.0)
    clock, scheduler, steps = Clock(monkeypatch, "sweep.launcher.watch"), Scheduler(JobState.RUNNING), iter(range(3))
    written(existing.directory, "launcher-earlier", INTENT, SUBMITTED)
    written(existing.directory, "pilot-p0001", STARTED, ALIVE)

    def show(_sweep):
        clock.now += 400
        raise OSError(errno.EIO, "Input/output error") if next(steps) < 2 else EnoughError

    launcher = Launcher(existing, executor=scheduler)
    launcher.local = False
    with pytest.raises(EnoughError):
        Loop(launcher, show).run()
    assert scheduler.cancelled == ["7"]
    launcher.close()


REMEASURED = GRID + "remeasure: 0.5\n"


@pytest.mark.parametrize(
    ("text", "left", "queued", "withdrawn", "planned"),
    [
        pytest.param(GRID, 0, SUBMITTED, ["7"], 4, id="nothing is left for it"),
        pytest.param(GRID, 1, SUBMITTED, [], 4, id="a run waits for it"),
        pytest.param(GRID, 0, STARTED, [], 4, id="it runs, and ends by itself"),
        pytest.param(REMEASURED, 0, SUBMITTED, [], 6, id="it measures the best two again"),
        pytest.param(REMEASURED, 0, STARTED, [], 4, id="another start measures them again"),
    ],
)
def test_a_pilot_in_the_queue_is_withdrawn_once_nothing_is_left_for_it(
    tmp_path, text, left, queued, withdrawn, planned
):
    sweep = made(tmp_path / "s", text)
    first, *others = (run.run_id for run in sweep.runs)
    pilot_wrote(sweep, "p0000", *((run_id, 1, Outcome.OK) for run_id in (others if left else [first, *others])))
    intended = PilotIntended(time=1.0, pilot="p0001", token="t", nodes=2, time_limit_s=60)
    written(sweep.directory, "launcher-earlier", intended, SUBMITTED, queued)
    scheduler = Scheduler(JobState.PENDING)
    launcher = Launcher(sweep, executor=scheduler)
    loop = Loop(launcher)
    for _ in range(2):
        loop.step()
    assert (scheduler.cancelled, len(launcher.sweep.runs)) == (withdrawn, planned)
    launcher.close()
