"""Which pilots of this sweep are dead: their jobs are gone from an answer of the scheduler."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping

from sweep.executors.executor import Executor, JobState, JobStatus, SubmitError
from sweep.inputs.site import parse_site
from sweep.plugins import find_executor
from sweep.store.directory import SweepDir


def dead_tokens(sweep: SweepDir, executor_name: str, tokens: Iterable[str]) -> list[str]:
    """Those of the tokens whose jobs the scheduler knows to be gone. No answer: none of them."""
    jobs = {token: _job_of(sweep, token) for token in tokens}
    if not jobs:
        return []
    executor = _executor(sweep, executor_name)
    known = [job for job in jobs.values() if job is not None]
    with contextlib.suppress(SubmitError):
        statuses = executor.poll(known) if known else {}
        return [token for token, job in jobs.items() if _gone(executor, token, job, statuses)]
    return []


def _gone(executor: Executor, token: str, job: str | None, statuses: Mapping[str, JobStatus]) -> bool:
    if job is None:
        return executor.find(token) == (JobState.GONE, None)
    return job in statuses and statuses[job].state is JobState.GONE


def _job_of(sweep: SweepDir, token: str) -> str | None:
    """The job that its leader named when it began."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = json.loads((sweep.pilot(token.rpartition("-")[2]) / "started").read_text())
        return str(started["job_id"])
    return None


def _executor(sweep: SweepDir, name: str) -> Executor:
    site = parse_site(sweep.site.read_text(), str(sweep.site))
    executor: Executor = find_executor(name)(site, sweep.path)
    return executor
