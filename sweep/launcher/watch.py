"""The open pilots, as the journals and the scheduler tell of them: what is gone is settled, what is stuck is ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from sweep.executors.executor import JobState, JobStatus, SubmitError
from sweep.launcher.lost_attempts import mark_attempts_lost, mark_late_attempts_lost
from sweep.launcher.session import Session
from sweep.state.events import PilotSilent, PilotSubmitted
from sweep.state.state import PilotState

LOCAL_POLL_S = 0.5
CANCEL_AGAIN_S = 30.0
TIMEOUT_S = 45.0
"""a pilot that runs, says nothing for so long and has work to do has lost its leader: its job would stay for ever"""
VISIBLE_S = 5.0
"""how long a gone pilot's last lines may take to be seen through the shared file system"""


class Watch:
    """Looks after the pilots of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._poll_s = LOCAL_POLL_S if session.local else session.sweep.site.poll_interval_s
        self._poll_after = 0.0
        self._gone_since: dict[str, float] = {}
        self._last_heartbeat: dict[str, tuple[int, float]] = {}
        self._ask_again_at: dict[str, float] = {}

    def check(self) -> None:
        """Settle pilots that said their last word; ask the scheduler of the others, where it is time."""
        self._close_ended()
        if time.monotonic() >= self._poll_after:
            self._poll()
            self._poll_after = time.monotonic() + self._poll_s

    def forgive(self) -> None:
        """Forget since when each pilot is silent: none is to blame for not having been listened to."""
        self._last_heartbeat.clear()

    def cancel_all(self) -> None:
        """Ask for the end of every open pilot."""
        self._cancel([pilot.job_id for pilot in self._session.open_pilots if pilot.job_id is not None])

    def _close_ended(self) -> None:
        """A pilot that said its last word has recorded all it did: no need to ask the scheduler."""
        for pilot in [pilot for pilot in self._session.open_pilots if pilot.ended is not None]:
            mark_attempts_lost(
                self._session, pilot, JobStatus(state=JobState.GONE, word="ENDED", reason=pilot.ended or "")
            )

    def _poll(self) -> None:
        """Ask the scheduler once for all open pilots; settle those that are gone."""
        pilots = self._session.open_pilots
        submitted = {pilot.job_id: pilot for pilot in pilots if pilot.job_id is not None}
        statuses = self._session.executor.poll(list(submitted)) if submitted else {}
        for job_id, pilot in submitted.items():
            self._check_pilot(pilot, statuses.get(job_id, JobStatus(state=JobState.UNKNOWN)))
        for pilot in pilots:
            if pilot.job_id is None and pilot.token:
                self._find_job(pilot)
        mark_late_attempts_lost(self._session)

    def _find_job(self, pilot: PilotState) -> None:
        """A submission that was cut off: found again by its token, or known never to have been."""
        state, job_id = self._session.executor.find(pilot.token)
        if job_id is not None:
            self._session.write(PilotSubmitted(time=time.time(), pilot=pilot.name, job_id=job_id))
        elif state is JobState.GONE:
            self._check_pilot(pilot, JobStatus(state=JobState.GONE, word="NEVER_SUBMITTED"))

    def _check_pilot(self, pilot: PilotState, status: JobStatus) -> None:
        """A pilot that is gone from two answers, long enough apart for its last lines to be seen, is settled."""
        if status.state is not JobState.GONE:
            self._gone_since.pop(pilot.name, None)
            self._check_running(pilot, status)
            return
        since = self._gone_since.setdefault(pilot.name, time.monotonic())
        wait_s = 0.0 if self._session.local else VISIBLE_S
        if time.monotonic() - since >= wait_s:
            self._read_last_lines(pilot)
            mark_attempts_lost(self._session, pilot, status)

    def _check_running(self, pilot: PilotState, status: JobStatus) -> None:
        """End a job that runs without its leader, and one that waits for nodes that nobody has."""
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
            self._session.write(PilotSilent(time=time.time(), pilot=pilot.name, silent_s=now - since))
            self._cancel([pilot.job_id])
        if status.state is JobState.PENDING and "ReqNodeNotAvail" in status.reason and pilot.elsewhere:
            self._session.same_nodes.add(pilot.nodes)
            self._cancel([pilot.job_id])

    def _read_last_lines(self, pilot: PilotState) -> None:
        """Read what it wrote, for certain: NFS may tell a file's size as it was (actimeo), until the file is opened."""
        path = self._session.directory.journal(f"pilot-{pilot.name}")
        with contextlib.suppress(FileNotFoundError):
            path.open("rb").close()
        self._session.refresh()

    def _cancel(self, job_ids: Sequence[str]) -> None:
        """Ask for the end of the jobs, and again only after a while: a pilot needs its time to clear up."""
        now = time.monotonic()
        due = [job_id for job_id in job_ids if now >= self._ask_again_at.get(job_id, 0.0)]
        if due:
            with contextlib.suppress(SubmitError):  # the scheduler does not answer: the next look asks again
                self._session.executor.cancel(due)
                self._ask_again_at.update(dict.fromkeys(due, now + CANCEL_AGAIN_S))
