"""An existing sweep, and parts of a pilot, for tests of failures."""

import asyncio
import contextlib
import os
import threading
from dataclasses import replace

import pytest

from sweep.contract import Layout, Phase, Run, Workload
from sweep.diagnose.model import Diagnosis
from sweep.outcomes import Outcome
from sweep.pilot.clock import PausingClock
from sweep.pilot.job_spec import JobSpec, Limits
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_state import AttemptResult, AttemptState
from sweep.pilot.leader.record import recorded_of
from sweep.pilot.leader.watchdog import StopReason
from sweep.pilot.messages import Clean, Heartbeat, Heartbeats, Prepare, Prepared, RankExited, Start, Stop
from sweep.records.record import EndedAttempt
from tests.support import driving
from tests.support.made_sweeps import made
from tests.support.simulated import place

GRID = driving.simulated(global_batch=1024, micro_batch_size=[1, 2], params={"step_s": 0.02}, name="edges")


@pytest.fixture
def existing(tmp_path):
    return made(tmp_path / "s", GRID)


def a_run(existing):
    return existing.runs[0].run()


class Mute:
    """A channel that receives nothing and stores every sent message."""

    local_address = peer_address = "127.0.0.1"

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)

    def close(self):
        pass

    async def wait_until_sent(self, kind):
        """Wait until a message of this kind was sent."""
        while not any(isinstance(message, kind) for message in self.sent):
            await asyncio.sleep(0.005)


class Open(Mute):
    """A connection that stays; what is put in ``incoming`` arrives."""

    def __init__(self):
        super().__init__()
        self.incoming = asyncio.Queue()

    async def receive(self):
        return await self.incoming.get()


class Time:
    """A clock's source that a test sets, second by second: a larger step would be a pause."""

    def __init__(self):
        self.at = 0.0
        self.clock = PausingClock(lambda: self.at)

    def passes(self, seconds):
        for _ in range(int(seconds)):
            self.at += 1.0
            self.clock.now()


class Scripted(Mute):
    """A channel: these messages arrive, an exception is raised; once the last reply was sent it is closed."""

    def __init__(self, *orders, until=None):
        super().__init__()
        self._orders = list(orders)
        self._until = until

    async def receive(self):
        if self._orders:
            if isinstance(order := self._orders.pop(0), Exception):
                raise order
            return order
        if self._until is not None:
            await self.wait_until_sent(self._until)
        return None


class Image:
    """A fake `ForkServer`, also for each one started: it forks nothing and stores its requests.

    The first rank of each process prints ``words``, and all end with exit code 0 once they were read.
    """

    pid, dead = 0, False

    def __init__(self, words=""):
        self.requests = []
        self._words = words.encode()

    async def start(self, _preload, _env):
        return self

    async def fork(self, request, fds, on_exit):
        self.requests.append(request)
        loop, pipe = asyncio.get_running_loop(), os.dup(fds[1])

        def write():  # ``words`` may exceed the pipe's buffer: not on the loop that reads them
            with os.fdopen(pipe, "wb") as file:
                file.write(self._words)
            with contextlib.suppress(RuntimeError):  # the test is over: its loop is closed, and the exit is not needed
                loop.call_soon_threadsafe(on_exit, 0)

        threading.Thread(target=write).start()
        return 1


def start(ranks=1, *, one_process=False):
    """The leader's message to start the ranks of the second of two nodes."""
    here = {"local_world_size": ranks, "node_rank": 1, "master_addr": "n1", "master_port": 5}
    places = tuple(place(ranks + local, 2 * ranks, local_rank=local, **here) for local in range(ranks))
    return Start(attempt="r.1", main="m:f", run="{}", places=places, takes_listener=True, one_process=one_process)


PREPARE = Prepare(attempt="r.1", preload=(), env={}, first=False)
STOP = Stop(attempt="r.1", evidence=False, grace_s=0.1, short=True)
CLEAN = Clean(attempt="r.1", ranks=(), not_ended=(), kernel=(), removed=())


async def played(runner, link, *messages):
    """The result of an attempt whose one agent sends these messages after its ranks were started."""

    async def play():
        await link.channel.wait_until_sent(Prepare)
        receive(link, Prepared(attempt="r.1", master_addr="x", master_port=1))
        await link.channel.wait_until_sent(Start)
        for message in messages:
            receive(link, message)
        await link.channel.wait_until_sent(Stop)
        receive(link, CLEAN)

    playing = asyncio.ensure_future(play())
    result = await runner.conduct()
    playing.cancel()
    return result


def receive(link, message):
    link.inbox.put_nowait((link.node, message))


def exits(*codes):
    """The exits of ranks 0, 1, …"""
    return [RankExited(attempt="r.1", rank=rank, exit_code=code, signal=None) for rank, code in enumerate(codes)]


def heartbeats(*heartbeats):
    """Heartbeats of rank 0: (phase, iteration) each."""
    messages = [
        Heartbeat(rank=0, phase=Phase(phase), iteration=number, due_s=None, age_s=0.0) for phase, number in heartbeats
    ]
    return Heartbeats(attempt="r.1", heartbeats=tuple(messages))


def runner_on(existing, *links, limits=None, checkpoint_dir=None, **run):
    """Of an attempt on these nodes. ``run``: of the run, where it is another."""
    workload = Workload(name="w", main="none:main", axes={})
    run = replace(a_run(existing), nodes=len(links), **run)
    return AttemptRunner("r.1", run, workload, links, limits or LIMITS, 0, checkpoint_dir=checkpoint_dir)


LIMITS = Limits(start_s=300.0, first_iteration_s=300.0, steady_s=20.0, attempt_s=900.0)
"""the limits of a grid without timeouts"""


def spec(**changes):
    values = {"name": "p0001", "token": "t", "sweep_name": "edges", "nodes": 1, "gpus_per_node": 2, "gpu": "cpu"}
    values |= {"time_limit_s": 1000, "executor": "local", "scratch": "/tmp", "limits": LIMITS}
    return JobSpec(**{**values, **changes})


def recorded(existing, result, stopping=None, *, limit_s=900.0, executor="local", **changes):
    """What is journalled of an attempt of two ranks with that result. ``changes``: of the attempt."""
    attempt = EndedAttempt(
        run=a_run(existing),
        number=1,
        sweep_name="edges",
        pilot="p0001",
        job_id="7",
        nodes=("local-0",),
        gpu="cpu",
        started_at=1.0,
        ended_at=2.0,
        outcome=Outcome.UNKNOWN,
        facts={"concurrent_with": ["other.1"]},
    )
    return recorded_of(replace(attempt, **changes), result, spec(executor=executor), limit_s, stopping)


def result_of(outcome, measurement=None):
    """The result of an attempt that was ended with this outcome; its two ranks sent this measurement."""
    run = Run(workload="w", model="m", shape={}, nodes=1, gpus_per_node=2, sequence_length=1, layout=Layout(dp=2))
    state = AttemptState("r.1", run, ["local-0"], LIMITS, 0.0)
    state.end(StopReason(outcome, "why"))
    for rank in state.ranks:
        rank.measurement = measurement
    return AttemptResult(state, Diagnosis(outcome, "", "", None, None), {"total_s": 1.0})
