"""Clearing stale processes: of pilots whose jobs the scheduler knows to be gone, and of agents that died alone."""

import asyncio
from types import SimpleNamespace

import pytest

from sweep.executors.executor import JobState, JobStatus, SubmitError
from sweep.pilot.leader import clearing
from sweep.pilot.leader.clearing import OrphanClearing, clear_stale_pilots
from sweep.pilot.leader.link import Link
from sweep.pilot.messages import ClearStale
from tests.support.pilot_parts import Mute, spec


class Scheduler:
    """Knows one job that is gone and one that runs."""

    def __init__(self, error=None):
        self._error = error

    def poll(self, jobs):
        if self._error is not None:
            raise self._error
        states = {"1": JobState.GONE, "2": JobState.RUNNING}
        return {job: JobStatus(state=states[job]) for job in jobs}

    def find(self, token):
        return (JobState.GONE, None) if token.endswith("p0003") else (JobState.RUNNING, "9")


@pytest.mark.parametrize(
    ("error", "cleared"), [(None, ("s-p0001", "s-p0003")), (SubmitError("no answer", retry=True), None)]
)
def test_only_what_the_scheduler_knows_to_be_gone_is_cleared(existing, monkeypatch, error, cleared):
    for name, job in (("p0001", "1"), ("p0002", "2")):
        (existing.directory.pilot(name)).mkdir()
        (existing.directory.pilot(name) / "started").write_text(f'{{"job_id": "{job}"}}')
    monkeypatch.setattr(clearing, "EXECUTOR", SimpleNamespace(find=lambda name: lambda site, path: Scheduler(error)))
    tokens = ("s-p0001", "s-p0002", "s-p0003", "s-p0004")

    async def scenario():
        links = [Link("n1", Mute(), stale_tokens=tokens), Link("n2", Mute(), stale_tokens=("s-p0002",))]
        links[0].cleared.set()
        await clear_stale_pilots(existing.directory, spec(), links)
        return [link.channel.sent for link in links]

    asked, other = asyncio.run(scenario())
    assert asked == ([] if cleared is None else [ClearStale(tokens=cleared)])
    assert other == []


@pytest.mark.parametrize("job_ends", [False, True])
def test_a_node_is_cleared_after_its_agent_unless_the_whole_job_ends(monkeypatch, job_ends):
    cleared = []

    async def clear(_spec, node):
        cleared.append(node)

    monkeypatch.setattr(clearing, "clear_orphans", clear)

    async def scenario():
        links = [Link("n1", Mute()), Link("n2", Mute())]
        orphans = OrphanClearing(spec())
        orphans.watch(links)
        await asyncio.sleep(0)
        if job_ends:
            orphans.stop()
        links[1].gone.set()
        await asyncio.sleep(0.01)
        await orphans.end(at_once=job_ends)

    asyncio.run(scenario())
    assert cleared == ([] if job_ends else ["n2"])
