"""Whether an executor submits, finds, reports and cancels jobs as the launcher relies on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sweep.executors.executor import Executor, JobState, PilotRequest
from sweep.inputs.site import Site
from sweep.testing.findings import named, require_none

POLL_S = 0.2
WAITING, ENDING = "exec sleep 600", "exec true"
"""last line of the site's set-up, which every executor runs first in a job: it replaces the pilot"""
LIVING = (JobState.PENDING, JobState.RUNNING)

MakeExecutor = Callable[[Site, Path], Executor]


def check_executor(make: MakeExecutor, site: Site, directory: Path, *, timeout_s: float = 60.0) -> None:
    """Check an executor with real jobs of one node: two that wait until they are cancelled, one that ends at once.

    ``make``: called with (site, sweep directory), as the launcher does. ``directory``: an empty one, visible where
    jobs run. ``timeout_s``: how long a job may take to start, and to end. Raises ConformanceError.
    """
    submitted: list[str] = []
    with_line = [site.model_copy(update={"setup": (*site.setup, line)}) for line in (WAITING, ENDING)]
    waiting, ending = (make(changed, directory) for changed in with_line)
    try:
        findings = [
            *_before_any_job(waiting, directory),
            *_life_of_a_job(waiting, make(with_line[0], directory), directory, submitted, timeout_s),
            *_job_that_ends(ending, directory, submitted, timeout_s),
        ]
    except Exception as error:  # third-party code: an executor may raise anything
        findings = [f"raised {named(error)}"]
    finally:
        waiting.cancel(submitted)
    require_none(f"the executor {type(waiting).__name__}", findings)


def _request(directory: Path, name: str) -> PilotRequest:
    (directory / "pilots" / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    return PilotRequest(token=f"testing-{time.time_ns():x}-{name}", name=name, nodes=1, time_limit_s=900)


def _before_any_job(executor: Executor, directory: Path) -> Iterator[str]:
    request = _request(directory, "p0001")
    script = executor.script(request)
    if script != executor.script(request):
        yield "script: differs for the same request"
    if WAITING not in script:
        yield "script: lacks the site's set-up lines"
    if any((directory / "pilots" / request.name).iterdir()):
        yield "script: writes files, though a dry run must not"
    if dict(executor.poll([])):
        yield "poll: reports jobs that it was not asked for"
    if (found := executor.find(request.token)) != (JobState.GONE, None):
        yield f"find: reports {found} for a token that was never submitted, not (GONE, None)"
    executor.cancel([])


def _life_of_a_job(
    executor: Executor, other: Executor, directory: Path, submitted: list[str], timeout_s: float
) -> Iterator[str]:
    """From submission to cancellation, also as seen by another launcher."""
    request = _request(directory, "p0001")
    job = executor.submit(request)
    submitted.append(job)
    if not isinstance(job, str) or not job.strip():
        yield f"submit: the job id is {job!r}, not a text"
        return
    state = _wait(executor, job, (JobState.RUNNING, JobState.GONE), timeout_s)
    if state is not JobState.RUNNING:
        yield f"poll: a job that waits is {state.value} after {timeout_s:g} s, not RUNNING"
    for finder, who in ((executor, "its submitter"), (other, "another instance")):
        if (found := finder.find(request.token)) not in [(living, job) for living in LIVING]:
            yield f"find: {who} finds {found}, not the running job {job}"
    second = executor.submit(_request(directory, "p0002"))
    submitted.append(second)
    if second == job:
        yield f"submit: two jobs have the id {job}"
    if set(reported := executor.poll([job, second])) != {job, second}:
        yield f"poll: asked for two jobs, reports {sorted(reported)}"
    yield from _cancelled(executor, request, job, timeout_s)
    if (state := executor.poll([second])[second].state) not in LIVING:
        yield f"cancel: it cancelled one of two jobs, and the other is {state.value}"


def _cancelled(executor: Executor, request: PilotRequest, job: str, timeout_s: float) -> Iterator[str]:
    executor.cancel([job])
    if (state := _wait(executor, job, (JobState.GONE,), timeout_s)) is not JobState.GONE:
        yield f"cancel: the job is {state.value} {timeout_s:g} s later, not GONE"
    if (state := executor.find(request.token)[0]) is not JobState.GONE:
        yield f"find: reports {state.value} for a job that was cancelled"
    executor.cancel([job])  # the launcher may cancel what has ended meanwhile


def _job_that_ends(executor: Executor, directory: Path, submitted: list[str], timeout_s: float) -> Iterator[str]:
    job = executor.submit(_request(directory, "p0003"))
    submitted.append(job)
    if (state := _wait(executor, job, (JobState.GONE,), timeout_s)) is not JobState.GONE:
        yield f"poll: a job that ended is {state.value} after {timeout_s:g} s, not GONE"


def _wait(executor: Executor, job: str, wanted: tuple[JobState, ...], timeout_s: float) -> JobState:
    deadline = time.monotonic() + timeout_s
    while True:
        state = executor.poll([job])[job].state
        if state in wanted or time.monotonic() > deadline:
            return state
        time.sleep(POLL_S)
