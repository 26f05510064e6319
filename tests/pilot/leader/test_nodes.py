"""The leader's nodes: what srun is asked for, how long agents are waited for, and which connections are admitted."""

import asyncio
import contextlib
import os
import resource
import socket

import pytest

from sweep.pilot.channel import Rendezvous, connect
from sweep.pilot.leader import nodes
from sweep.pilot.leader.nodes import Admission, raise_file_limit, start_agents, waits
from sweep.pilot.messages import Hello
from sweep.pilot.timeouts import ARRIVAL_S, STRAGGLER_S
from sweep.state.events import PilotEnded, PilotStarted
from tests.support import driving
from tests.support.clients import made_client
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import spec


def test_the_step_has_no_mpi_and_survives_the_oom_of_one_rank(tmp_path, monkeypatch):
    """Captured: one of Slurm's newer versions, whose OOMKillStep this acts on, does not run here."""
    made_client(tmp_path / "srun", 'printf "%s\\n" "$@"\nenv')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_OOM_KILL_STEP", "1")  # as sbatch sets it for the job's steps
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    (process,) = start_agents(spec(executor="slurm", nodes=3, srun=("--container-image=x",)), tmp_path)
    process.wait(20)
    output = (tmp_path / "agents.log").read_text().splitlines()
    assert output[: output.index("--container-image=x") + 1] == [
        *("--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--mpi=none", "--no-kill", "--kill-on-bad-exit=0"),
        *("--wait=0", "--cpu-bind=none", "--mem=0", "--unbuffered", "--container-image=x"),
    ]
    assert "SLURM_OOM_KILL_STEP=0" in output


@pytest.mark.parametrize(
    ("arrived", "now", "waiting"),
    [
        ([], ARRIVAL_S - 1, True),
        ([], ARRIVAL_S, False),
        ([float(second) for second in range(100)], 99 + ARRIVAL_S - 1, True),
        ([float(second) for second in range(100)], 99 + ARRIVAL_S, False),
        ([1.0] * 128, STRAGGLER_S, True),
        ([1.0] * 128, STRAGGLER_S + 1, False),
        ([2.0 * number for number in range(200)], 2.0 * 127 * 2 - 1, True),
        ([2.0 * number for number in range(200)], 2.0 * 127 * 2, False),
        ([1.0] * 256, 1.0, False),
    ],
)
def test_the_wait_for_256_agents_is_measured_by_those_that_arrived(arrived, now, waiting):
    assert waits(arrived, 256, 0.0, now) is waiting


LATE = ["/bin/sh", "-c", 'case " $* " in *" --index 1 "*) sleep 5;; esac; exec "$@"', "agent"]


def test_an_agent_that_comes_late_joins_and_runs_that_need_it_are_measured_in_the_same_pilot(tmp_path):
    """With a straggler's time of 2 s."""
    env = {"PYTHONPATH": f"{REPOSITORY}/tests/support/short_timeouts:{REPOSITORY}"}
    site = {"pilot_time": "20m", "max_pilots": 1, "container_prefix": LATE}
    keys = {"iterations": 4, "warmup_iterations": 2, "params": {"step_s": 0.4}}
    driving.launched(tmp_path, driving.simulated(site, nodes=[1, 2], micro_batch_size=[1, 2], **keys), env=env)
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    assert {record["pilot"] for record in records} == {"p0001"}
    assert [event.nodes for event in driving.events_of(tmp_path / "s", PilotStarted)] == [
        ("local-0",),
        ("local-0", "local-1"),
    ]
    assert len(driving.events_of(tmp_path / "s", PilotEnded)) == 1
    assert driving.state_of(tmp_path / "s").pilots["p0001"].node_names == ("local-0", "local-1")


KEY = b"k" * 32
HELLO = Hello(node="n1", index=0, stale_tokens=())


@contextlib.asynccontextmanager
async def admitting(most):
    """(the port, the greetings so far) of an admission of at most so many unproved connections."""
    joined = []
    admits = Admission(KEY, lambda _channel, hello: joined.append(hello))
    admits._most = most
    server = await asyncio.start_server(admits.accept, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1], joined
    server.close()


async def idle(port, count):
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def end_of(reader):
    """Everything until the connection is closed."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(1000):
            pass


async def eventually(condition):
    while not condition():
        await asyncio.sleep(0.01)


@pytest.mark.timeout(60)
async def test_an_agent_is_admitted_beside_idle_strangers_of_which_the_oldest_are_closed():
    async with admitting(most=5) as (port, joined):
        strangers = await idle(port, 12)
        channel = await connect(Rendezvous(("127.0.0.1",), port, KEY), 5.0)
        channel.send(HELLO)
        await eventually(lambda: joined == [HELLO])
        for reader, _ in strangers[:7]:
            await end_of(reader)
        for reader, writer in strangers[-4:]:
            assert len(await reader.read(1000)) == 32  # the challenge
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            writer.close()
        channel.close()


async def test_a_handshake_has_one_deadline_however_slowly_its_bytes_come(monkeypatch):
    monkeypatch.setattr(nodes, "HANDSHAKE_TIMEOUT_S", 0.5)
    async with admitting(most=5) as (port, _):
        ((reader, writer),) = await idle(port, 1)
        closed = asyncio.ensure_future(end_of(reader))
        sent = 0
        while not closed.done() and sent < 64:
            writer.write(b"x")
            sent += 1
            await asyncio.sleep(0.2)
        assert closed.done()


@pytest.mark.timeout(60)
async def test_any_number_of_strangers_is_one_line_in_the_log(capsys):
    async with admitting(most=5) as (port, _):
        for _ in range(3):
            for reader, writer in await idle(port, 20):
                writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
                await end_of(reader)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.timeout(60)
async def test_without_a_free_descriptor_the_leader_goes_on_and_admits_later(capsys):
    async with admitting(most=1000) as (port, joined):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        ends = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
        await asyncio.sleep(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(end.fileno() for end in ends) + 40, before[1]))
        try:
            await asyncio.sleep(2.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for end in ends:
            end.close()
        channel = await connect(Rendezvous(("127.0.0.1",), port, KEY), 5.0)
        channel.send(HELLO)
        await eventually(lambda: joined == [HELLO])
    assert capsys.readouterr().err.count("\n") == 1


def test_the_limit_of_open_files_is_raised():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raised = raise_file_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
