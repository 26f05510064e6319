"""Lost attempts: started or claimed by a pilot that is gone, never recorded. Each gets the outcome `lost`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from sweep.diagnose.diagnose import diagnose_state
from sweep.errors import log_error
from sweep.executors.executor import JobState, JobStatus
from sweep.launcher.launcher import Launcher
from sweep.outcomes import Outcome
from sweep.records.record import EndedAttempt, build_record
from sweep.state.events import PilotGone, Recorded
from sweep.state.state import PilotState
from sweep.store.directory import UNKNOWN_PILOT, claims_of, last_output


def mark_attempts_lost(launcher: Launcher, pilot: PilotState, status: JobStatus) -> None:
    """Record `lost` for what the pilot started or claimed and never recorded; then close it.

    Raises LeaseLostError where another launcher took over while this one waited: then it decides.
    """
    launcher.lease.check()
    if status.word == "FAILED" and pilot.started_at is None:
        output = last_output(launcher.directory.pilot(pilot.name))
        log_error(f"pilot {pilot.name} ended before it started; its last output: {output}")
    began = {key: attempt.started_at for key, attempt in launcher.unrecorded if attempt.pilot == pilot.name}
    for run_id, number, claim in claims_of(launcher.directory, known=launcher.sweep.sweep_state.has_record):
        if claim.pilot == pilot.name:
            began[run_id, number] = claim.time
    for key, began_at in began.items():
        _mark_lost(launcher, key, began_at, pilot, status)
    gone = PilotGone(
        time=time.time(),
        pilot=pilot.name,
        word=status.word or "GONE",
        reason=status.reason,
        ended_at=status.ended_at,
    )
    launcher.write(gone)


def note_ends(launcher: Launcher, statuses: Mapping[str, JobStatus]) -> None:
    """Note when the jobs of pilots that wrote their last lines ended, by the scheduler: they held their nodes."""
    for pilot in launcher.sweep.sweep_state.pilots.values():
        ended_at = statuses.get(pilot.job_id or "", JobStatus(state=JobState.UNKNOWN)).ended_at
        if pilot.ended and pilot.gone and ended_at and pilot.released_at is None:
            launcher.write(PilotGone(time=time.time(), pilot=pilot.name, word=pilot.gone, ended_at=ended_at))


def mark_late_attempts_lost(launcher: Launcher) -> None:
    """Mark lost what became visible only after its pilot was closed (a claim in a stale directory, a leader
    that was cut off and kept running).
    """
    for key, attempt in launcher.unrecorded:
        _mark_lost_of_closed(launcher, key, attempt.started_at, attempt.pilot)
    if not launcher.open_pilots:
        for run_id, number, claim in claims_of(launcher.directory, known=launcher.sweep.sweep_state.has_record):
            _mark_lost_of_closed(launcher, (run_id, number), claim.time, claim.pilot)


def _mark_lost_of_closed(launcher: Launcher, key: tuple[str, int], began_at: float | None, name: str) -> None:
    pilot = launcher.sweep.sweep_state.pilots.get(name)
    if name == UNKNOWN_PILOT and not launcher.open_pilots:  # a damaged claim: its holder is gone
        pilot = PilotState(name, gone="GONE", intended_at=time.time())
    if pilot is not None and pilot.gone is not None:
        _mark_lost(launcher, key, began_at, pilot, JobStatus(state=JobState.GONE, word=pilot.gone))


def _mark_lost(
    launcher: Launcher, key: tuple[str, int], began_at: float | None, pilot: PilotState, status: JobStatus
) -> None:
    """Write the record of an attempt without one. Raises LeaseLostError."""
    launcher.lease.check()
    run_id, number = key
    if launcher.sweep.sweep_state.has_record(run_id, number) or (planned := launcher.sweep.planned(run_id)) is None:
        return  # a run of a plan that is not visible here yet: marked lost once it is
    attempt = launcher.sweep.sweep_state.run_state(run_id).attempts.get(number)
    diagnosis = diagnose_state(status.word)
    known = diagnosis.outcome is not None
    meaning = f"{status.word}: {diagnosis.outcome}" if status.word and known else status.word or "ended"
    ended = EndedAttempt(
        run=planned.run(),
        number=number,
        sweep_name=launcher.sweep.grid.name,
        pilot=pilot.name,
        job_id=pilot.job_id,
        nodes=attempt.nodes if attempt is not None else (),
        gpu=launcher.sweep.site.part(planned.node_group).gpu,
        started_at=(began := began_at or pilot.started_at or pilot.intended_at),
        ended_at=max(began, status.ended_at or pilot.last_line_at or time.time()),
        outcome=Outcome.LOST,
        message=f"its pilot's job {pilot.job_id} is gone ({meaning}) and left no record",
        evidence=diagnosis.evidence if known else None,
        advice=diagnosis.advice if known else None,
    )
    launcher.write(Recorded(time=time.time(), record=build_record(ended)))
