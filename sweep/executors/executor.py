"""Where pilots run. An executor turns a pilot request into a job, reports jobs' states, and ends jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class PilotRequest:
    """One pilot to be submitted: a value, rendered by a dry run and consumed by a submission."""

    token: str
    """unique over all sweeps of the user; becomes the job's name, by which an interrupted submission is found again"""
    name: str
    """the pilot's name in the sweep directory"""
    nodes: int
    time_limit_s: int
    node_group: str = ""
    """of the site, if it has some: ``Site.part`` says how its nodes are asked for"""
    exclude: tuple[str, ...] = ()
    """nodes to exclude"""


class JobState(str, Enum):
    """What is known of a job. Unlisted states are UNKNOWN, never success and never failure."""

    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    """it holds its nodes, and its processes are stopped: they cannot write a heartbeat"""
    GONE = "gone"
    """the scheduler states its end, or that it knows no such job"""
    UNKNOWN = "unknown"
    """the scheduler did not answer, or not wholly, or with an unlisted state: touch nothing"""


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """One job's state, with the scheduler's own text for messages."""

    state: JobState
    word: str = ""
    """the scheduler's own state, e.g. NODE_FAIL"""
    reason: str = ""
    name: str = ""
    """of the job; empty where the scheduler does not say"""
    ended_at: float | None = None
    """unix seconds, by the scheduler's clock; None where it does not say, and before the end"""


def first_live(jobs: Iterable[tuple[str, JobStatus]]) -> tuple[str, JobStatus] | None:
    """Of several jobs of one name, the oldest that has not ended."""
    order = (JobState.RUNNING, JobState.SUSPENDED, JobState.PENDING, JobState.UNKNOWN, JobState.GONE)
    return min(jobs, key=lambda job: (order.index(job[1].state), (len(job[0]), job[0])), default=None)


class SubmitError(Exception):
    """The scheduler rejected the job, or it is unknown whether it accepted."""

    def __init__(self, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.retry = retry
        """True where a later retry may work (limits, a slow controller); False where it never will"""


class Executor(Protocol):
    """The interface of executors."""

    def cluster(self) -> str:
        """The cluster that is asked here: job ids of another one mean nothing. Empty while unknown."""

    def script(self, request: PilotRequest) -> str:
        """The script that would be submitted, for a dry run."""

    def submit(self, request: PilotRequest) -> str:
        """Submit; the job id. Raises SubmitError."""

    def poll(self, job_ids: Sequence[str]) -> Mapping[str, JobStatus]:
        """The states of the jobs, by one batched query; with those of the other jobs that it lists."""

    def find(self, token: str) -> tuple[JobState, str | None]:
        """The job that carries the token: (its state, its id). (GONE, None) only where the scheduler reported so."""

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel the jobs: SIGTERM first, as the scheduler does it."""
