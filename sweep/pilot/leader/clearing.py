"""Clearing nodes of stale processes: of dead pilots, and of this pilot's own agents when they die."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Sequence

from sweep.errors import SweepError
from sweep.executors.executor import Executor, JobState, SubmitError
from sweep.pilot.agent.orphans import clear_orphans
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.link import Link
from sweep.pilot.messages import ClearStale
from sweep.plugins import EXECUTOR
from sweep.store.directory import SweepDir

CLEAR_STALE_S = 30.0
"""for what dead pilots left: kills take KILL_WAIT_S at most, the rest is removal of files; what takes longer goes on
while runs begin"""


async def clear_stale_pilots(directory: SweepDir, spec: JobSpec, links: Sequence[Link]) -> None:
    """Clear stale processes of this sweep's dead pilots from our nodes. Nothing if the scheduler does not answer."""
    tokens = sorted({token for link in links for token in link.stale_tokens})
    with contextlib.suppress(OSError, UnicodeError, SweepError):
        dead = await asyncio.to_thread(dead_tokens, directory, spec.executor, tokens)
        asked = [link for link in links if set(link.stale_tokens) & set(dead)]
        for link in asked:
            link.send(ClearStale(tokens=tuple(dead)))
        waits = [asyncio.wait_for(link.cleared.wait(), CLEAR_STALE_S) for link in asked]
        await asyncio.gather(*waits, return_exceptions=True)


def dead_tokens(directory: SweepDir, executor_name: str, tokens: Iterable[str]) -> list[str]:
    """The tokens whose jobs the scheduler reports as gone. No answer: none of them."""
    jobs = {token: _job_of(directory, token) for token in tokens}
    if not jobs:
        return []
    from sweep.inputs.site import parse_site  # pydantic: half a second of each pilot's start, needed by few

    site = parse_site(directory.site.read_text(), str(directory.site))
    executor: Executor = EXECUTOR.find(executor_name)(site, directory.path)
    known = [job for job in jobs.values() if job is not None]
    with contextlib.suppress(SubmitError):
        gone = {job for job, status in executor.poll(known).items() if status.state is JobState.GONE}
        return [
            token
            for token, job in jobs.items()
            if job in gone or (job is None and executor.find(token) == (JobState.GONE, None))
        ]
    return []


def _job_of(directory: SweepDir, token: str) -> str | None:
    """The job id that its leader wrote when it began."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = json.loads((directory.pilot(token.rpartition("-")[2]) / "started").read_text())
        return str(started["job_id"])
    return None


class OrphanClearing:
    """Clears nodes whose agents died while the job goes on."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec
        self._clearing: list[asyncio.Task[None]] = []
        self._watching: dict[Link, asyncio.Task[None]] = {}
        self._stopped = False

    def watch(self, links: Iterable[Link]) -> None:
        """Watch these too; agents may join late."""
        for link in links:
            if link not in self._watching and not self._stopped:
                self._watching[link] = asyncio.ensure_future(self._clear_after(link))

    def stop(self) -> None:
        """The whole job is ending, agents first: no longer clear nodes whose agent ends."""
        self._stopped = True
        for task in self._watching.values():
            task.cancel()

    async def end(self, *, at_once: bool) -> None:
        """Wait for clearing in progress. `at_once`: there is no time to wait."""
        for task in self._clearing if at_once else ():
            task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)
        self.stop()

    async def _clear_after(self, link: Link) -> None:
        await link.gone.wait()
        self._clearing.append(asyncio.ensure_future(clear_orphans(self._spec, link.node)))
