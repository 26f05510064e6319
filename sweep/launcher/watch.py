"""Watching open pilots by journals and scheduler: those that are gone are marked lost, stuck ones are cancelled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence

from sweep.errors import log_error
from sweep.executors.executor import JobState, JobStatus, SubmitError, first_live
from sweep.executors.slurm_states import NOT_STARTED, wait
from sweep.launcher.launcher import Launcher, is_own, token_of
from sweep.launcher.lost_attempts import mark_attempts_lost, mark_late_attempts_lost, note_ends
from sweep.state import events
from sweep.state.events import PilotSubmitted, PilotUnresponsive, PilotWaits
from sweep.state.state import PilotState
from sweep.store.lease import QUIET_S

LOCAL_POLL_S = 0.5
"""of this machine's processes: a read of /proc, no scheduler is asked"""
CANCEL_AGAIN_S = 30.0
"""Slurm's default KillWait: until then a cancelled job may still be ending by itself"""
POLL_SHARE = 0.1
"""at most this fraction of the time is spent in waiting for the scheduler: one that is slow is asked less often"""
MAX_POLL_S = 300.0
"""half of TIMEOUT_S: however slow the scheduler is, a pilot's state is known when its time-out is judged"""
TIMEOUT_S = 600.0
"""a running pilot without a heartbeat for this long is cancelled. A leader's line may have to wait for the file system:
an NFS client repeats a request for 60 s to 600 s (man 5 nfs, timeo and retrans), a Lustre client waits as long for a
server's recovery. Agents without a leader end their job much sooner (``sweep.pilot.agent.agent``)"""
APART_S = 10.0
"""between two answers that a pilot is gone: longer than its last lines take to appear through the shared file system
(an NFS client keeps a file's attributes for 3 s, man 5 nfs, acregmin), and than a busy controller's answer is old"""


def of_another(pilot: PilotState, status: JobStatus) -> bool:
    """Whether the answer is about another job of that id: of a name without the token. Sites put words around it."""
    if not status.name or not pilot.token:
        return False
    return all(after[:1].isdigit() for after in status.name.split(pilot.token)[1:])


def _elsewhere(pilot: PilotState, here: str) -> str:
    return (
        f"pilot {pilot.name} is job {pilot.job_id or pilot.token} of {pilot.cluster}, and this host asks {here}: it "
        "can be watched and cancelled there only (`sweep resume`, `sweep cancel`)"
    )


class Watch:
    """Watches the pilots of a launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._poll_s = LOCAL_POLL_S if launcher.local else launcher.sweep.site.poll_interval_s
        self._poll_after = 0.0
        self._gone_since: dict[str, float] = {}
        self._heard: dict[str, tuple[object, float]] = {}
        """pilot -> its leader's last line, and when it was first seen or last excused"""
        self._answers = True
        self._ask_again_at: dict[str, float] = {}
        self._runs_since: dict[str, float] = {}
        """job without a leader yet -> when it was first seen to run"""
        self._reported: set[str] = set()

    def check(self) -> bool:
        """Close pilots that ended by themselves; poll the scheduler for the others, when due.

        True where it answers again, after it did not.
        """
        for pilot in self._launcher.open_pilots:
            # One that wrote its last line has recorded everything. What the original's pilots do is recorded there.
            if pilot.ended is not None or not is_own(self._launcher.sweep, pilot):
                word = "ENDED" if pilot.ended is not None else "OF_THE_ORIGINAL"
                status = JobStatus(state=JobState.GONE, word=word, reason=pilot.ended or "")
                mark_attempts_lost(self._launcher, pilot, status)
        for pilot in self._launcher.open_pilots:
            self._heard_at(pilot)
        began, answered = time.monotonic(), self._answers
        if began >= self._poll_after:
            self._answers = self._poll()
            now = time.monotonic()
            slow_s = min((now - began) / POLL_SHARE, MAX_POLL_S) if self._answers else 0.0
            due = [self._gone_at(pilot) for pilot in self._launcher.open_pilots if pilot.name in self._gone_since]
            self._poll_after = max(now, min([now + max(self._poll_s, slow_s), *due]))
        return self._answers and not answered

    def reset_timeouts(self) -> None:
        """Restart all heartbeat timeouts: heartbeats may have arrived while this process was not reading."""
        self._heard.clear()
        self._runs_since.clear()

    def cancel_all(self) -> None:
        """Cancel every open pilot, except those of another cluster: there the id may be another job's."""
        here = self._launcher.executor.cluster()
        self._cancel([pilot.job_id for pilot in self._of_this_cluster(here) if pilot.job_id is not None])

    def cancel_requeued(self) -> None:
        """Cancel jobs that an administrator or a preemption put back into the queue after their pilots ended.

        Such a job would exit at once, but wait for nodes until then, longer than its sweep.
        """
        launcher, here = self._launcher, self._launcher.executor.cluster()
        pilots = launcher.sweep.sweep_state.pilots.values()
        own = [pilot for pilot in pilots if is_own(launcher.sweep, pilot)]
        closed = {pilot.job_id: pilot for pilot in own if pilot.job_id and pilot.cluster in ("", here)}
        statuses = launcher.executor.poll(list(closed)) if closed else {}
        note_ends(self._launcher, statuses)
        waiting = (job for job in closed if statuses[job].state is JobState.PENDING)
        self._cancel([job for job in waiting if not of_another(closed[job], statuses[job])])

    def _heard_at(self, pilot: PilotState, *, excused: bool = False) -> float:
        """When its leader's last line was first seen here, or last excused: its silence then says nothing."""
        line = (pilot.heartbeats, pilot.last_line_at)
        if excused or self._heard.get(pilot.name, (None, 0.0))[0] != line:
            self._heard[pilot.name] = line, time.monotonic()
        return self._heard[pilot.name][1]

    def _poll(self) -> bool:
        """Poll the scheduler once for all open pilots; mark lost those that are gone. False where it does not answer.

        It is then not asked for the others: each question may take its time-out.
        """
        self._launcher.show_alive()
        here = self._launcher.executor.cluster()
        pilots = self._of_this_cluster(here)
        submitted = {pilot.job_id: pilot for pilot in pilots if pilot.job_id is not None}
        statuses = self._launcher.executor.poll(list(submitted)) if submitted and here else {}
        note_ends(self._launcher, statuses)
        for job_id, pilot in submitted.items():
            self._check_pilot(pilot, self._about(pilot, job_id, statuses))
        answers = not submitted or any(status.state is not JobState.UNKNOWN for status in statuses.values())
        answers = self._launcher.local or (bool(here) and answers)
        for pilot in pilots:
            if pilot.job_id is None and answers:
                answers = self._find_job(pilot) is not JobState.UNKNOWN or bool(submitted)
        mark_late_attempts_lost(self._launcher)
        return answers

    def _of_this_cluster(self, here: str) -> list[PilotState]:
        """The open pilots whose jobs the scheduler asked here can know."""
        pilots = []
        for pilot in self._launcher.open_pilots:
            if pilot.cluster in ("", here):
                pilots.append(pilot)
            elif self._launcher.local and time.time() - (pilot.last_line_at or pilot.intended_at) > TIMEOUT_S:
                # The machine may have another name now, as each new container has: no one else can ask for a process.
                mark_attempts_lost(self._launcher, pilot, JobStatus(state=JobState.GONE, word="UNRESPONSIVE"))
            elif here and pilot.name not in self._reported:
                self._reported.add(pilot.name)
                log_error(_elsewhere(pilot, here))
        return pilots

    def _about(self, pilot: PilotState, job_id: str, statuses: Mapping[str, JobStatus]) -> JobStatus:
        """The scheduler's answer about the pilot's job. Its name is the pilot's token: an id may be a wrong one."""
        status = statuses.get(job_id, JobStatus(state=JobState.UNKNOWN))
        if not of_another(pilot, status) and (status.state is not JobState.GONE or status.name):
            return status
        own = first_live((job, one) for job, one in statuses.items() if one.name and one.name == pilot.token)
        if own is not None and own[0] != job_id:
            self._launcher.write(PilotSubmitted(time=time.time(), pilot=pilot.name, job_id=own[0]))
            return own[1]
        if of_another(pilot, status):
            gone = self._launcher.executor.find(pilot.token) == (JobState.GONE, None)
            return JobStatus(state=JobState.GONE if gone else JobState.UNKNOWN)
        return status

    def _find_job(self, pilot: PilotState) -> JobState:
        """Resolve an interrupted submission: find its job by the token, or learn that it never existed.

        The token is that of its intent; or made again from its name, where the intent's line is damaged.
        """
        self._launcher.show_alive()
        token = pilot.token or token_of(self._launcher.sweep.sweep_id, pilot.name)
        state, job_id = self._launcher.executor.find(token)
        if job_id is not None:
            self._launcher.write(PilotSubmitted(time=time.time(), pilot=pilot.name, job_id=job_id))
        elif state is JobState.GONE:
            self._check_pilot(pilot, JobStatus(state=JobState.GONE, word="NEVER_SUBMITTED"))
        return state

    def _check_pilot(self, pilot: PilotState, status: JobStatus) -> None:
        """Mark a pilot lost once two answers say that it is gone, and its leader wrote nothing for long enough."""
        if status.state is not JobState.GONE:
            self._gone_since.pop(pilot.name, None)
            self._check_running(pilot, status)
            return
        self._gone_since.setdefault(pilot.name, time.monotonic())
        if time.monotonic() >= self._gone_at(pilot):
            self._read_last_lines(pilot)
        if time.monotonic() >= self._gone_at(pilot):
            mark_attempts_lost(self._launcher, pilot, status)
            del self._gone_since[pilot.name]

    def _gone_at(self, pilot: PilotState) -> float:
        """When a pilot that the scheduler says is gone counts as such. Its process on this machine is seen to be.

        A last line that is older by the leader's clock than clocks differ needs no waiting for.
        """
        since = self._gone_since[pilot.name]
        if self._launcher.local:
            return since
        if pilot.last_line_at is None or time.time() - pilot.last_line_at > QUIET_S:
            return since + APART_S
        return max(since + APART_S, self._heard_at(pilot) + events.LEADER_SILENT_S)

    def _check_running(self, pilot: PilotState, status: JobStatus) -> None:
        """Cancel a job that runs without its leader, and one that waits for nodes that do not exist."""
        if pilot.job_id is None:
            return
        reason = status.reason[:300] if status.state is JobState.PENDING else None
        if status.word == "RUNNING" and pilot.started_at is None:
            site = self._launcher.sweep.site.part(pilot.node_group)
            least_s = TIMEOUT_S + (site.setup_time if site.setup else 0)
            runs_s = time.monotonic() - self._runs_since.setdefault(pilot.job_id, time.monotonic())
            reason = NOT_STARTED if runs_s > least_s else None
        else:
            self._runs_since.pop(pilot.job_id, None)
        if reason is not None and (pilot.waits is None or wait(pilot.waits).text != wait(reason).text):
            self._launcher.write(PilotWaits(time=time.time(), pilot=pilot.name, reason=reason))
        if time.monotonic() - self._heard_at(pilot) > TIMEOUT_S:
            self._read_last_lines(pilot)
        silent_s = time.monotonic() - self._heard_at(pilot)
        if status.state is not JobState.RUNNING or pilot.started_at is None:
            self._heard_at(pilot, excused=True)
        elif silent_s > TIMEOUT_S:
            self._heard_at(pilot, excused=True)
            self._launcher.write(PilotUnresponsive(time=time.time(), pilot=pilot.name, silent_s=silent_s))
            self._cancel([pilot.job_id])
        if status.state is JobState.PENDING and "ReqNodeNotAvail" in status.reason and pilot.elsewhere:
            self._launcher.same_nodes.add((pilot.node_group, pilot.nodes))
            self._cancel([pilot.job_id])

    def _read_last_lines(self, pilot: PilotState) -> None:
        """Read its journal without cached sizes: NFS may report an old size (actimeo) until the file is opened."""
        path = self._launcher.directory.journal(f"pilot-{pilot.name}")
        with contextlib.suppress(FileNotFoundError):
            path.open("rb").close()
        self._launcher.refresh(resting=True)

    def _cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel the jobs, and again only after a while: a pilot needs its time to clean up."""
        now = time.monotonic()
        due = [job_id for job_id in job_ids if now >= self._ask_again_at.get(job_id, 0.0)]
        if due:
            with contextlib.suppress(SubmitError):  # the scheduler does not answer: the next poll tries again
                self._launcher.executor.cancel(due)
                self._ask_again_at.update(dict.fromkeys(due, now + CANCEL_AGAIN_S))
