"""What a watch makes of the scheduler's answers: wrong ones, late ones, and those about jobs of another cluster."""

import time

import pytest

from sweep.cli.progress_text import queue_texts
from sweep.executors.executor import JobState, JobStatus
from sweep.launcher.launcher import Launcher
from sweep.launcher.lost_attempts import mark_attempts_lost
from sweep.launcher.watch import APART_S, TIMEOUT_S, Watch
from sweep.state import events
from sweep.state.events import (
    AttemptStarted,
    PilotAlive,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotSubmitted,
    PilotWaits,
    SessionAlive,
)
from sweep.store import lease
from sweep.store.lease import LeaseLostError
from tests.support import driving
from tests.support.launchers import Clock, Scheduler, written

INTENT = PilotIntended(time=1.0, pilot="p0001", token="s-p0001", nodes=1, time_limit_s=60)
SUBMITTED = PilotSubmitted(time=2.0, pilot="p0001", job_id="7")


class Lists(Scheduler):
    """Lists these jobs, by id."""

    def poll(self, job_ids):
        self.polls += 1
        return dict.fromkeys(job_ids, JobStatus(state=JobState.GONE)) | self.jobs

    def find(self, token):
        return self.state, None


@pytest.fixture
def watched(existing, monkeypatch):
    """A launcher of one submitted pilot, its watch, and the watch's clock."""
    written(existing.directory, "launcher-earlier", INTENT, SUBMITTED)
    clock, launcher = Clock(monkeypatch, "sweep.launcher.watch"), Launcher(existing)
    launcher.local = False
    yield launcher, Watch(launcher), clock
    launcher.close()


def is_open(launcher):
    return launcher.sweep.sweep_state.pilots["p0001"].open


def passes(clock, launcher, watch, seconds):
    for _ in range(seconds):
        clock.now += 1
        launcher.refresh()
        watch.check()


def test_a_pilot_whose_leader_writes_lives_whatever_the_scheduler_says(watched):
    launcher, watch, clock = watched
    now = time.time()
    started = PilotStarted(time=now, pilot="p0001", job_id="7", nodes=("n1",))
    journal = written(launcher.directory, "pilot-p0001", started)
    launcher.executor = Scheduler(JobState.GONE)
    for beat in range(12):
        passes(clock, launcher, watch, int(events.LEADER_ALIVE_S))
        journal.append(PilotAlive(time=now + beat / 100, pilot="p0001"))
    assert is_open(launcher)
    passes(clock, launcher, watch, int(events.LEADER_SILENT_S) + 20)
    assert not is_open(launcher), "it no longer writes"


def test_a_pilot_that_never_wrote_is_gone_after_two_answers_that_are_apart(watched):
    launcher, watch, clock = watched
    launcher.executor = Scheduler(JobState.GONE)
    watch.check()
    launcher.executor.state = JobState.UNKNOWN
    passes(clock, launcher, watch, 20)
    launcher.executor.state, asked = JobState.GONE, launcher.executor.polls
    while launcher.executor.polls == asked:
        passes(clock, launcher, watch, 1)
    passes(clock, launcher, watch, int(APART_S) - 1)
    assert is_open(launcher), "after an answer that was unknown it begins again"
    passes(clock, launcher, watch, 1)
    assert not is_open(launcher)


@pytest.mark.parametrize("wrong", [{"7": "another"}, {}], ids=["another job has the id", "no job has the id"])
def test_a_wrong_job_id_is_put_right_by_the_token(watched, wrong):
    launcher, watch, clock = watched
    jobs = {job: JobStatus(state=JobState.GONE, name=name) for job, name in wrong.items()}
    launcher.executor = Lists(jobs=jobs | {"8": JobStatus(state=JobState.PENDING, name="s-p0001")})
    passes(clock, launcher, watch, 60)
    assert is_open(launcher)
    assert launcher.sweep.sweep_state.pilots["p0001"].job_id == "8"


@pytest.mark.parametrize(("name", "own"), [("site_s-p0001", True), ("s-p0001.u1", True), ("s-p00011", False)])
def test_what_a_job_submit_plug_in_puts_around_the_token_makes_no_other_job_of_it(watched, name, own):
    launcher, watch, clock = watched
    launcher.executor = Lists(jobs={"7": JobStatus(state=JobState.PENDING, name=name)})
    passes(clock, launcher, watch, 60)
    assert is_open(launcher) == own


@pytest.mark.parametrize("state", [JobState.GONE, JobState.UNKNOWN])
def test_another_job_of_its_id_says_that_it_is_gone_only_where_no_job_has_the_token(watched, state):
    launcher, watch, clock = watched
    launcher.executor = Lists(state, jobs={"7": JobStatus(state=JobState.RUNNING, name="another")})
    passes(clock, launcher, watch, 60)
    assert is_open(launcher) == (state is JobState.UNKNOWN)


def test_why_a_pilot_waits_is_written_once_for_what_is_the_same_to_the_user(watched):
    launcher, watch, clock = watched
    for reason in ("", "Priority", "Resources", "JobHeldUser", "JobHeldUser", "Priority"):
        job = JobStatus(state=JobState.PENDING, name="s-p0001", reason=reason)
        launcher.executor = Lists(jobs={"7": job})
        passes(clock, launcher, watch, 20)
    written = driving.events_of(launcher.directory.path, PilotWaits)
    assert [event.reason for event in written] == ["", "JobHeldUser", "Priority"]


def test_of_a_job_that_runs_for_long_and_starts_nothing_the_user_learns_how_to_free_its_nodes(watched):
    """Its prolog may hang, or its image: it is not cancelled, since large images may take as long."""
    launcher, watch, clock = watched
    launcher.executor = Lists(jobs={"7": JobStatus(state=JobState.RUNNING, word="RUNNING", name="s-p0001")})
    passes(clock, launcher, watch, int(TIMEOUT_S))
    assert not queue_texts(launcher.sweep.sweep_state)
    passes(clock, launcher, watch, 60)
    (text,) = queue_texts(launcher.sweep.sweep_state)
    assert "its job runs, but its pilot has not started" in text
    assert "`scancel 7`" in text
    assert len(driving.events_of(launcher.directory.path, PilotWaits)) == 1
    assert is_open(launcher)


def test_the_time_for_which_a_job_runs_begins_anew_when_it_is_requeued_suspended_or_not_watched(watched):
    launcher, watch, clock = watched
    for word, state in (
        ("PENDING", JobState.PENDING),
        ("SUSPENDED", JobState.SUSPENDED),
        ("RUNNING", JobState.RUNNING),
    ):
        for now, then in ((word, state), ("RUNNING", JobState.RUNNING)):
            launcher.executor = Lists(jobs={"7": JobStatus(state=then, word=now, name="s-p0001")})
            passes(clock, launcher, watch, int(TIMEOUT_S * 0.7))
            watch.reset_timeouts()
    launcher.executor = Lists(jobs={"7": JobStatus(state=JobState.RUNNING, word="COMPLETING", name="s-p0001")})
    passes(clock, launcher, watch, int(TIMEOUT_S) + 60)
    assert not queue_texts(launcher.sweep.sweep_state)


def test_a_slow_scheduler_is_asked_less_often(watched):
    """It takes 12 s to answer: at most a tenth of the time is spent so."""
    launcher, watch, clock = watched
    launcher.executor = Scheduler(JobState.PENDING, lambda: setattr(clock, "now", clock.now + 12.0))
    began = clock.now
    while clock.now < began + 600:
        watch.check()
        clock.now += 0.5
    assert launcher.executor.polls <= 600 / (12 / 0.1) + 1


def test_a_launcher_shows_that_it_lives_before_it_waits_for_the_scheduler(watched):
    launcher, watch, _ = watched
    launcher.heartbeat_at, seen = 0.0, []
    path = launcher.directory.path
    launcher.executor = Scheduler(JobState.PENDING, lambda: seen.extend(driving.events_of(path, SessionAlive)))
    watch.check()
    assert len(seen) == 1


def test_lost_is_written_under_a_checked_lease_only(existing, watched):
    """Another launcher took over while this one waited for the scheduler's answer."""
    (launcher, *_), directory, run_id = watched, existing.directory, existing.runs[0].run_id
    written(directory, "pilot-p0001", AttemptStarted(time=3.0, pilot="p0001", run_id=run_id, attempt=1, nodes=("n1",)))
    launcher.refresh()
    lease.take(directory, takeover=True)
    with pytest.raises(LeaseLostError):
        mark_attempts_lost(launcher, launcher.sweep.sweep_state.pilots["p0001"], JobStatus(state=JobState.GONE))
    assert driving.records_of(directory.path) == []
    assert driving.events_of(directory.path, PilotGone) == []


@pytest.mark.parametrize(("state", "cancelled"), [(JobState.PENDING, ["7"]), (JobState.RUNNING, [])])
def test_a_job_that_was_requeued_after_its_pilot_ended_is_cancelled_with_the_sweep(watched, state, cancelled):
    """One that runs ends by itself within seconds."""
    launcher, watch, _ = watched
    written(launcher.directory, "launcher-later", PilotGone(time=3.0, pilot="p0001", word="ENDED"))
    launcher.refresh()
    launcher.executor = Scheduler(state)
    watch.cancel_requeued()
    assert launcher.executor.cancelled == cancelled


@pytest.mark.parametrize("submitted", [True, False])
@pytest.mark.parametrize(("here", "lost"), [("b", False), ("", False), ("a", True)])
def test_only_its_own_cluster_reports_that_a_job_is_gone(existing, capsys, here, lost, submitted):
    directory, run_id = existing.directory, existing.runs[0].run_id
    now = time.time()
    intent = PilotIntended(time=now, pilot="p0001", token="s-p0001", nodes=1, time_limit_s=60, cluster="a")
    launcher = written(directory, "launcher-earlier", intent)
    if submitted:
        launcher.append(PilotSubmitted(time=now, pilot="p0001", job_id="7"))
        started = PilotStarted(time=now, pilot="p0001", job_id="7", nodes=("n1",))
        attempt = AttemptStarted(time=now, pilot="p0001", run_id=run_id, attempt=1, nodes=("n1",))
        written(directory, "pilot-p0001", started, attempt)
    launcher = Launcher(existing)
    launcher.executor = Scheduler(cluster=here)
    launcher.local = True  # gone at the first answer
    watch = Watch(launcher)
    watch.check()
    watch.cancel_all()
    assert launcher.sweep.sweep_state.pilots["p0001"].open != lost
    assert len(driving.records_of(directory.path)) == int(lost and submitted)
    assert bool(launcher.executor.asked) == lost
    assert ("of a, and this host asks b" in capsys.readouterr().err) == (here == "b")
    launcher.close()


def test_a_pilot_of_this_machine_by_an_earlier_name_of_it_is_gone_once_it_wrote_nothing_for_long(existing):
    """A new container has another name: nobody can ask for the processes of the one before."""
    directory, silent, alive = existing.directory, TIMEOUT_S + 1, 0.0
    for name, silent_s in (("p0001", silent), ("p0002", alive)):
        at = {"time": time.time() - silent_s, "pilot": name}
        intent = PilotIntended(**at, token=f"s-{name}", nodes=1, time_limit_s=60, cluster="earlier")
        written(directory, f"launcher-{name}", intent, PilotSubmitted(**at, job_id=f"local-{name}@earlier"))
        written(directory, f"pilot-{name}", PilotStarted(**at, job_id=f"local-{name}@earlier", nodes=("local-0",)))
    launcher = Launcher(existing)
    Watch(launcher).check()
    assert [pilot.name for pilot in launcher.open_pilots] == ["p0002"]
    launcher.close()
