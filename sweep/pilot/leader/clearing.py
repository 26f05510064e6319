"""Clearing nodes of stale processes: of dead pilots, and of this pilot's own agents when they die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench_workloads.interpreter import module_command
from sweep.errors import SweepError, log_error
from sweep.executors.executor import Executor, JobState, SubmitError
from sweep.files import end_of
from sweep.pilot.agent.orphans import REACHED
from sweep.pilot.job import has_node, node_state, outputs_of
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.node_fate import Fate, fate_of, works
from sweep.pilot.messages import ClearStale
from sweep.plugins import EXECUTOR
from sweep.state import events
from sweep.store.directory import SweepDir
from sweep.store.lease import QUIET_S

CLEAR_STALE_S = 30.0
"""for what dead pilots left: kills take KILL_WAIT_S at most, the rest is removal of files; what takes longer goes on
while runs begin"""
CLEAR_S = 40.0
"""as long as the leader waits for a node to be clean (CLEAN_S): a dead node does not answer, and the scheduler ends
what runs there"""

SAID_BYTES = 1 << 16
"""of the agents' output: srun says last why their step ended, in a line for each node"""


async def clear_stale_pilots(directory: SweepDir, spec: JobSpec, links: Sequence[Link]) -> None:
    """Clear stale processes of this sweep's dead pilots from our nodes. Nothing if the scheduler does not answer."""
    tokens = sorted({token for link in links for token in link.stale_tokens})
    with contextlib.suppress(OSError, UnicodeError, SweepError):
        dead = await asyncio.to_thread(dead_tokens, directory, spec.executor, tokens)
        if spec.executor != "local":  # the processes of this machine are seen
            # Whatever the scheduler says, a leader that writes while this waits lives. Hosts' clocks may differ, so
            # that only a line that is much older needs no wait.
            before = {token: await asyncio.to_thread(_written_at, directory, token) for token in dead}
            if any(time.time() - at < QUIET_S for at in before.values()):
                await asyncio.sleep(events.LEADER_SILENT_S)
            dead = [t for t, at in before.items() if await asyncio.to_thread(_written_at, directory, t) == at]
        asked = [link for link in links if set(link.stale_tokens) & set(dead)]
        for link in asked:
            link.send(ClearStale(tokens=tuple(dead)))
        waits = [asyncio.wait_for(link.cleared.wait(), CLEAR_STALE_S) for link in asked]
        await asyncio.gather(*waits, return_exceptions=True)


def dead_tokens(directory: SweepDir, executor_name: str, tokens: Iterable[str]) -> list[str]:
    """The tokens whose jobs the scheduler reports as gone. No answer, or one about another job: none of them."""
    jobs = {token: _job_of(directory, token) for token in tokens}
    if not jobs:
        return []
    from sweep.inputs.site import parse_site  # pydantic: half a second of each pilot's start, needed by few

    site = parse_site(directory.site.read_text(), str(directory.site))
    executor: Executor = EXECUTOR.find(executor_name)(site, directory.path)
    known = [job for job in jobs.values() if job is not None]
    with contextlib.suppress(SubmitError):
        statuses = executor.poll(known)
        gone = {(job, one.name) for job, one in statuses.items() if one.state is JobState.GONE}
        return [
            token
            for token, job in jobs.items()
            if {(job, ""), (job, token)} & gone or (job is None and executor.find(token) == (JobState.GONE, None))
        ]
    return []


def _written_at(directory: SweepDir, token: str) -> float:
    """When its leader's last line was written; 0 where there is none. Opened: NFS may show old attributes otherwise."""
    try:
        with directory.journal(f"pilot-{_pilot_of(token)}").open("rb") as journal:
            return os.fstat(journal.fileno()).st_mtime
    except FileNotFoundError:
        return 0.0


def _pilot_of(token: str) -> str:
    return token.rpartition("-")[2]


def _job_of(directory: SweepDir, token: str) -> str | None:
    """The job id that its leader wrote when it began."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        started = json.loads((directory.pilot(_pilot_of(token)) / "started").read_text())
        return str(started["job_id"])
    return None


class OrphanClearing:
    """Clears nodes whose agents died while the job goes on, and finds out what became of them."""

    def __init__(self, spec: JobSpec, directory: Path) -> None:
        self._spec, self._directory = spec, directory
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
        for link, task in self._watching.items():
            task.cancel()
            link.resolved.set()

    async def end(self, *, at_once: bool) -> None:
        """Wait for clearing in progress. `at_once`: there is no time to wait."""
        for task in self._clearing if at_once else ():
            task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)
        self.stop()

    async def _clear_after(self, link: Link) -> None:
        await link.gone.wait()
        self._clearing.append(asyncio.ensure_future(self._clear(link)))

    async def _clear(self, link: Link) -> None:
        try:
            link.fate = await clear_orphans(self._spec, self._directory, link.node)
        finally:
            link.resolved.set()


async def clear_orphans(spec: JobSpec, directory: Path, node: str) -> Fate:
    """End what ranks left on a node whose agent died, by a process there, alongside the agents' step. Errors are logged
    and do not stop the pilot. Also what became of the node: by that process, else by asking Slurm.
    """
    command = module_command("sweep.pilot.agent.orphans", spec.token, node, spec.scratch)
    if spec.executor == "slurm":
        step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", "--mpi=none", "--mem=0"]
        step += ["--cpu-bind=none", "--quiet"]
        command = [*step, *spec.srun, *spec.container_prefix, *command]
    output, errors = await outputs_of(command, CLEAR_S)
    if errors:
        log_error(f"{node}: cleanup after its agent: {errors[-500:]}")
    if REACHED in output:
        return works(await asyncio.to_thread(end_of, directory / "agents.log", SAID_BYTES))
    state, in_job = await asyncio.to_thread(node_state, node), await asyncio.to_thread(has_node, node)
    return fate_of(refusal=errors, state=state, in_job=in_job)
