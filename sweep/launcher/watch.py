"""Watching open pilots by journals and scheduler: those that are gone are marked lost, stuck ones are cancelled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from sweep.errors import log_error
from sweep.executors.executor import JobState, JobStatus, SubmitError
from sweep.launcher.launcher import Launcher, is_own, token_of
from sweep.launcher.lost_attempts import mark_attempts_lost, mark_late_attempts_lost
from sweep.state.events import PilotSubmitted, PilotUnresponsive
from sweep.state.state import PilotState

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
VISIBLE_S = 5.0
"""how long a gone pilot's last lines may take to appear through the shared file system: an NFS client keeps a changing
file's attributes for 3 s (man 5 nfs, acregmin)"""


def answer_about(pilot: PilotState, status: JobStatus) -> JobStatus:
    """The scheduler's answer; UNKNOWN where the job of that id is another one than the pilot's."""
    if status.name and pilot.token and status.name != pilot.token:
        return JobStatus(state=JobState.UNKNOWN, reason=f"job {pilot.job_id} here is {status.name}, not {pilot.token}")
    return status


class Watch:
    """Watches the pilots of a launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._poll_s = LOCAL_POLL_S if launcher.local else launcher.sweep.site.poll_interval_s
        self._poll_after = 0.0
        self._gone_since: dict[str, float] = {}
        self._last_heartbeat: dict[str, tuple[int, float]] = {}
        self._ask_again_at: dict[str, float] = {}
        self._reported: set[str] = set()

    def check(self) -> None:
        """Close pilots that ended by themselves; poll the scheduler for the others, when due."""
        self._close_ended()
        began = time.monotonic()
        if began >= self._poll_after:
            self._poll()
            now = time.monotonic()
            self._poll_after = now + max(self._poll_s, min((now - began) / POLL_SHARE, MAX_POLL_S))

    def reset_timeouts(self) -> None:
        """Restart all heartbeat timeouts: heartbeats may have arrived while this process was not reading."""
        self._last_heartbeat.clear()

    def cancel_all(self) -> None:
        """Cancel every open pilot, except those of another cluster: there the id may be another job's."""
        self._cancel([pilot.job_id for pilot in self._of_this_cluster() if pilot.job_id is not None])

    def cancel_requeued(self) -> None:
        """Cancel jobs that an administrator or a preemption put back into the queue after their pilots ended.

        Such a job would exit at once, but wait for nodes until then, longer than its sweep.
        """
        launcher, here = self._launcher, self._launcher.executor.cluster()
        pilots = launcher.sweep.sweep_state.pilots.values()
        own = [pilot for pilot in pilots if is_own(launcher.sweep, pilot)]
        closed = {pilot.job_id: pilot for pilot in own if pilot.job_id and pilot.cluster in ("", here)}
        statuses = launcher.executor.poll(list(closed)) if closed else {}
        waiting = (
            job for job, status in statuses.items() if answer_about(closed[job], status).state is JobState.PENDING
        )
        self._cancel(list(waiting))

    def _close_ended(self) -> None:
        """A pilot that wrote its last line has recorded everything: no need to poll the scheduler. What the original's
        pilots do is recorded there.
        """
        for pilot in self._launcher.open_pilots:
            if pilot.ended is not None or not is_own(self._launcher.sweep, pilot):
                word = "ENDED" if pilot.ended is not None else "OF_THE_ORIGINAL"
                status = JobStatus(state=JobState.GONE, word=word, reason=pilot.ended or "")
                mark_attempts_lost(self._launcher, pilot, status)

    def _poll(self) -> None:
        """Poll the scheduler once for all open pilots; mark lost those that are gone."""
        self._launcher.show_alive()
        pilots = self._of_this_cluster()
        submitted = {pilot.job_id: pilot for pilot in pilots if pilot.job_id is not None}
        statuses = self._launcher.executor.poll(list(submitted)) if submitted else {}
        for job_id, pilot in submitted.items():
            self._check_pilot(pilot, answer_about(pilot, statuses.get(job_id, JobStatus(state=JobState.UNKNOWN))))
        for pilot in pilots:
            if pilot.job_id is None:
                self._find_job(pilot)
        mark_late_attempts_lost(self._launcher)

    def _of_this_cluster(self) -> list[PilotState]:
        """The open pilots whose jobs the scheduler asked here can know."""
        here, pilots = self._launcher.executor.cluster(), []
        for pilot in self._launcher.open_pilots:
            if pilot.cluster in ("", here):
                pilots.append(pilot)
            elif here and pilot.name not in self._reported:
                self._reported.add(pilot.name)
                log_error(
                    f"pilot {pilot.name} is job {pilot.job_id or pilot.token} of {pilot.cluster}, and this host asks "
                    f"{here}: it can be watched and cancelled there only (`sweep resume`, `sweep cancel`)"
                )
        return pilots

    def _find_job(self, pilot: PilotState) -> None:
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

    def _check_pilot(self, pilot: PilotState, status: JobStatus) -> None:
        """Mark a pilot lost once it is gone in two polls, long enough apart for its last lines to appear."""
        if status.state is not JobState.GONE:
            self._gone_since.pop(pilot.name, None)
            self._check_running(pilot, status)
            return
        since = self._gone_since.setdefault(pilot.name, time.monotonic())
        wait_s = 0.0 if self._launcher.local else VISIBLE_S
        if time.monotonic() - since >= wait_s:
            self._read_last_lines(pilot)
            mark_attempts_lost(self._launcher, pilot, status)

    def _check_running(self, pilot: PilotState, status: JobStatus) -> None:
        """Cancel a job that runs without its leader, and one that waits for nodes that do not exist."""
        if pilot.job_id is None:
            return
        heartbeats, since = self._last_heartbeat.get(pilot.name, (-1, 0.0))
        now = time.monotonic()
        if heartbeats == pilot.heartbeats and now - since > TIMEOUT_S:
            self._read_last_lines(pilot)
        if heartbeats != pilot.heartbeats or status.state is not JobState.RUNNING or pilot.started_at is None:
            self._last_heartbeat[pilot.name] = pilot.heartbeats, now
        elif now - since > TIMEOUT_S:
            self._last_heartbeat[pilot.name] = pilot.heartbeats, now
            self._launcher.write(PilotUnresponsive(time=time.time(), pilot=pilot.name, silent_s=now - since))
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
