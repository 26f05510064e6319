"""Clearing stale processes: of pilots whose jobs the scheduler knows to be gone, and of agents that died alone."""

import asyncio
from types import SimpleNamespace

import pytest

from sweep.executors.executor import JobState, JobStatus, SubmitError
from sweep.pilot.leader import clearing
from sweep.pilot.leader.clearing import OrphanClearing, clear_orphans, clear_stale_pilots
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.node_fate import Fate
from sweep.pilot.messages import ClearStale
from sweep.state import events
from sweep.state.events import PilotAlive
from tests.support.clients import made_client
from tests.support.launchers import written
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
async def test_only_what_the_scheduler_knows_to_be_gone_is_cleared(existing, monkeypatch, error, cleared):
    for name, job in (("p0001", "1"), ("p0002", "2")):
        (existing.directory.pilot(name)).mkdir()
        (existing.directory.pilot(name) / "started").write_text(f'{{"job_id": "{job}"}}')
    monkeypatch.setattr(clearing, "EXECUTOR", SimpleNamespace(find=lambda name: lambda site, path: Scheduler(error)))
    tokens = ("s-p0001", "s-p0002", "s-p0003", "s-p0004")
    links = [Link("n1", Mute(), stale_tokens=tokens), Link("n2", Mute(), stale_tokens=("s-p0002",))]
    links[0].cleared.set()
    await clear_stale_pilots(existing.directory, spec(), links)
    assert links[0].channel.sent == ([] if cleared is None else [ClearStale(tokens=cleared)])
    assert links[1].channel.sent == []


@pytest.mark.parametrize("lives", [True, False])
async def test_no_leader_kills_a_pilot_whose_leader_writes(existing, monkeypatch, lives):
    """Whatever the scheduler says of it."""
    existing.directory.pilot("p0001").mkdir()
    (existing.directory.pilot("p0001") / "started").write_text('{"job_id": "1"}')
    journal = written(existing.directory, "pilot-p0001", PilotAlive(time=1.0, pilot="p0001"))
    monkeypatch.setattr(clearing, "EXECUTOR", SimpleNamespace(find=lambda name: lambda site, path: Scheduler()))
    monkeypatch.setattr(events, "LEADER_SILENT_S", 0.1)
    link = Link("n1", Mute(), stale_tokens=("s-p0001",))
    link.cleared.set()
    clears = asyncio.ensure_future(clear_stale_pilots(existing.directory, spec(executor="slurm"), [link]))
    while lives and not clears.done():
        journal.append(PilotAlive(time=1.0, pilot="p0001"))
        await asyncio.sleep(0.01)
    await clears
    assert link.channel.sent == ([] if lives else [ClearStale(tokens=("s-p0001",))])


@pytest.mark.parametrize("job_ends", [False, True])
async def test_a_node_is_cleared_after_its_agent_unless_the_whole_job_ends(tmp_path, monkeypatch, job_ends):
    cleared = []

    async def clear(_spec, _directory, node):
        cleared.append(node)
        return Fate.ALIVE

    monkeypatch.setattr(clearing, "clear_orphans", clear)
    links = [Link("n1", Mute()), Link("n2", Mute())]
    orphans = OrphanClearing(spec(), tmp_path)
    orphans.watch(links)
    await asyncio.sleep(0)
    if job_ends:
        orphans.stop()
    links[1].gone.set()
    await asyncio.wait_for(links[1].resolved.wait(), 5)
    await orphans.end(at_once=job_ends)
    assert cleared == ([] if job_ends else ["n2"])
    assert links[1].fate is (Fate.UNKNOWN if job_ends else Fate.ALIVE)


LAUNCH = "echo 'srun: error: Task launch for StepId=7.1 failed on node n2: {}' >&2; exit 1"
CANCELLED = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-26T02:13:14 ***\n"
REFUSED = (
    "echo 'srun: error: Unable to create step for job 7: Requested node configuration is not available' >&2; exit 1"
)


@pytest.mark.parametrize(
    ("srun", "sinfo", "nodes", "fate", "said"),
    [
        ("echo the node is reached", "down*", "n1", Fate.ALIVE, ""),
        ("echo the node is reached", "down*", "n1", Fate.CANCELLED, CANCELLED),
        (LAUNCH.format("Communication connection failure"), "allocated", "n1 n2", Fate.DEAD, ""),
        (LAUNCH.format("Job credential revoked"), "allocated", "n1 n2", Fate.UNKNOWN, ""),
        (REFUSED, "idle", "n1", Fate.RELEASED, ""),
        (REFUSED, "down*", "n1", Fate.DEAD, ""),
        (REFUSED, "allocated*", "n1 n2", Fate.DEAD, ""),
        (REFUSED, "", "", Fate.UNKNOWN, ""),
    ],
)
def test_what_became_of_a_node_is_asked_of_slurm(tmp_path, monkeypatch, srun, sinfo, nodes, fate, said):
    """A step on the node decides, then the node's state, then the job's nodes; without an answer it is not known."""
    scripts = {
        "srun": srun,
        "sinfo": f"echo 'n2 {sinfo} end'",
        "squeue": f"echo '7 {nodes and 'n[1-2]'} end'",
        "scontrol": f"printf '%s\n' {nodes}",
    }
    for name, text in scripts.items():
        made_client(tmp_path / name, text)
    (tmp_path / "agents.log").write_text(said)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert asyncio.run(clear_orphans(spec(executor="slurm"), tmp_path, "n2")) is fate
