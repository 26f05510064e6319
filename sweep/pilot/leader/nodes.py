"""The leader's nodes: starts one agent on each, accepts their connections at any time, sends them heartbeats.

Who connects to a leader: agents prove the pilot's key, in time; strangers cost a bounded number of connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import secrets
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from bench_workloads.interpreter import module_command
from bench_workloads.ports import BACKLOG, listen_on_free_port
from sweep.errors import log_error
from sweep.pilot.channel import HANDSHAKE_TIMEOUT_S, Channel, LeaderChannel, Rendezvous, authenticate
from sweep.pilot.clock import TICK_S, PausingClock
from sweep.pilot.job import all_cpus
from sweep.pilot.job_spec import JobSpec
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.network import host_addresses
from sweep.pilot.messages import ChannelError, Hello, Leave, Ping, decode_of_agent
from sweep.pilot.timeouts import ARRIVAL_S, HEARTBEAT_S, STRAGGLER_S

MOST_FILES = 65_536
"""what the limit of open files is raised to, where the hard limit allows it: a process inherits it, and some programs
close every number up to the limit at their start"""
REPORT_S = 60.0
"""at most one line about refused connections in this time"""


def raise_file_limit() -> int:
    """Raise this process's limit of open files, and return it: the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if wanted > soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft if soft != resource.RLIM_INFINITY else MOST_FILES


class Admission:
    """Admits agents of one pilot: gives the channel and the greeting of each to ``join``."""

    def __init__(self, key: bytes, join: Callable[[LeaderChannel, Hello], None]) -> None:
        self._key, self._join = key, join
        self._most = min(BACKLOG, raise_file_limit() // 4)
        self._unproved: dict[asyncio.StreamWriter, None] = {}
        """connections that have not proved the key, the oldest first"""
        self._refused = 0
        self._report_at = 0.0
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Above the bound the oldest one is closed: an agent proves itself at once, or tries again."""
        if len(self._unproved) >= self._most:
            oldest = next(iter(self._unproved))
            del self._unproved[oldest]
            oldest.transport.abort()
        self._unproved[writer] = None
        try:
            channel, hello = await asyncio.wait_for(self._greet(reader, writer), HANDSHAKE_TIMEOUT_S)
        except (ChannelError, asyncio.TimeoutError, OSError) as error:
            self._refuse(str(error) or f"no proof of the key within {HANDSHAKE_TIMEOUT_S:.0f} s")
            writer.transport.abort()
            return
        finally:
            self._unproved.pop(writer, None)
        self._join(channel, hello)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[LeaderChannel, Hello]:
        seals = await authenticate(reader, writer, self._key, b"leader", b"agent")
        channel: LeaderChannel = Channel(reader, writer, decode_of_agent, *seals)
        hello = await channel.receive()
        if not isinstance(hello, Hello):
            raise ChannelError("the peer left before it said who it is")
        return channel, hello

    def _refuse(self, why: str) -> None:
        """Report strangers now and then: the log is bounded."""
        self._refused += 1
        if time.monotonic() >= self._report_at:
            self._report_at = time.monotonic() + REPORT_S
            log_error(f"refused {self._refused} connections that are no agent's; the last: {why}")
            self._refused = 0

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A connection that the loop could not accept (no descriptor is free): it tries again after a second."""
        if "socket" in context and isinstance(context.get("exception"), OSError):
            self._refuse(f"{context['message']}: {context['exception']}")
        else:
            loop.default_exception_handler(context)


LEAVE_S = 20.0
"""how long srun may take to end once its agents did: twice Slurm's default MessageTimeout"""

STEP_ENVIRONMENT = {"SLURM_OOM_KILL_STEP": "0"}
"""From Slurm 23.11 on a site may have all tasks of a step killed when the kernel kills one process for its memory
(OOMKillStep): one rank's OOM would end the agents of all nodes. As a variable, since older sruns refuse the option."""

Processes = Sequence[subprocess.Popen[bytes]]


class Nodes:
    """A link to each agent that ever connected. Agents may come late, and come back."""

    def __init__(self, wanted: int, clock: PausingClock) -> None:
        self.terminated = asyncio.Event()
        """an agent got SIGTERM: the scheduler ends the job"""
        self._wanted = wanted
        self._clock = clock
        self.processes: Processes = []
        """the agents', or srun"""
        self._links: dict[int, Link] = {}
        self._arrived: list[float] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def links(self) -> list[Link]:
        """The links, in node order."""
        return [self._links[index] for index in sorted(self._links)]

    @property
    def complete(self) -> bool:
        """Whether every agent has connected once."""
        return len(self._links) >= self._wanted

    def leaders_address(self) -> str | None:
        """The address by which most agents on other nodes reach this host: what the host's name says may not work."""
        used = Counter(link.channel.local_address for link in self.links if not link.on_this_host)
        return used.most_common(1)[0][0] if used else None

    def join(self, channel: LeaderChannel, hello: Hello) -> None:
        """An agent connected, for the first time or again."""
        link = self._links.get(hello.index)
        if link is None:
            link = Link(
                hello.node,
                channel,
                spot=hello.spot,
                boot=hello.boot,
                stale_tokens=hello.stale_tokens,
                clock=self._clock,
                leaders_address=self.leaders_address,
                terminated=self.terminated,
            )
            self._links[hello.index] = link
            self._arrived.append(self._clock.now())
        else:
            log_error(f"the agent on {hello.node} is back")
            link.take_back(channel, hello)
        reading = asyncio.ensure_future(link.read())
        self._tasks.add(reading)
        reading.add_done_callback(self._tasks.discard)

    async def arrive(self) -> None:
        """Wait until all agents have connected, or go on without the missing ones: they may still come."""
        began = self._clock.now()
        while not ended(self.processes) and waits(self._arrived, self._wanted, began, self._clock.now()):
            await asyncio.sleep(0.02)

    async def watch(self) -> None:
        """Send heartbeats and check for the agents', without end."""
        ping_at = self._clock.now()
        while True:
            now = self._clock.now()
            for link in self._links.values():
                link.check()
                if now >= ping_at:
                    link.send(Ping())
            ping_at += HEARTBEAT_S if now >= ping_at else 0.0
            await asyncio.sleep(TICK_S)

    async def leave(self) -> None:
        """Let all agents go, and wait until their processes have ended; SIGTERM to those that did not, in time."""
        for link in self._links.values():
            link.send(Leave())
            link.alive = False
        for _ in range(int(LEAVE_S / 0.02)):
            if ended(self.processes):
                return
            await asyncio.sleep(0.02)
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()


def waits(arrived: Sequence[float], wanted: int, began: float, now: float) -> bool:
    """Whether to wait for further agents, given when each of those so far arrived. Pure.

    How long 256 nodes take to start Python from a shared file system differs a hundredfold between clusters, so those
    that arrived are the measure for the others.
    """
    if len(arrived) >= wanted:
        return False
    half = (wanted + 1) // 2
    if len(arrived) < half:
        return now - max([began, *arrived]) < ARRIVAL_S
    took_s = arrived[half - 1] - began
    return now - arrived[half - 1] < max(STRAGGLER_S, took_s)


@contextlib.asynccontextmanager
async def agents(spec: JobSpec, directory: Path, clock: PausingClock) -> AsyncIterator[Nodes]:
    """Start the agents; yield the nodes, which are still to arrive; on exit end the agents and wait."""
    nodes, key = Nodes(spec.nodes, clock), secrets.token_bytes(32)
    admission = Admission(key, nodes.join)
    server = await asyncio.start_server(admission.accept, sock=listen_on_free_port(), backlog=BACKLOG)
    rendezvous = directory / "rendezvous"
    port = server.sockets[0].getsockname()[1]
    node = os.environ.get("SLURMD_NODENAME", "") if spec.executor == "slurm" else ""
    mine = Rendezvous(host_addresses(spec.interface), port, key, node)
    mine.write(rendezvous)
    nodes.processes = start_agents(spec, directory)
    watching = asyncio.ensure_future(nodes.watch())
    try:
        yield nodes
    finally:
        server.close()
        await nodes.leave()
        watching.cancel()
        nodes.close()
        with contextlib.suppress(OSError, ValueError):  # without its leader the key is useless
            if Rendezvous.read(rendezvous) == mine:  # not that of a sweep which took the place of this one
                rendezvous.unlink()


def start_agents(spec: JobSpec, directory: Path) -> Processes:
    """Start an agent on each node."""
    output = os.open(directory / "agents.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    agent = [*spec.container_prefix, *module_command("sweep.pilot.agent", str(directory), "--scratch", spec.scratch)]
    environment = dict(os.environ)
    if spec.executor == "slurm":
        commands = [[*srun(spec, environment), *agent]]
        environment |= STEP_ENVIRONMENT
    else:
        commands = [[*agent, "--node", f"local-{index}", "--index", str(index)] for index in range(spec.nodes)]
    try:
        return [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
            for command in commands
        ]
    finally:
        os.close(output)


def srun(spec: JobSpec, environment: Mapping[str, str]) -> list[str]:
    """One step with all of each node, that survives the failure of another node (seen on Slurm 22.05).

    Agents are no MPI processes: without --mpi=none a site's default plugin would set PMI variables for them.
    """
    command = ["srun", f"--nodes={spec.nodes}", f"--ntasks={spec.nodes}", "--ntasks-per-node=1", "--mpi=none"]
    command += ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none", "--mem=0", "--unbuffered"]
    return [*command, *all_cpus(environment), *spec.srun]


def ended(processes: Processes) -> bool:
    """Whether all of them have ended."""
    return all(process.poll() is not None for process in processes)
