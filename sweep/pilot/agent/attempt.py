"""One attempt on one node: fork server and directories, its ranks and their reports, teardown."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from bench_workloads.ports import listen_on_free_port
from sweep.contract import Measurement, Place
from sweep.files import end_of
from sweep.outcomes import Outcome
from sweep.pilot.agent import evidence
from sweep.pilot.agent.cleanup import clear, empty, remove_scratch, remove_shared_memory
from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.fork_servers import ForkServer, ForkServerError, ForkServerPool
from sweep.pilot.agent.heartbeats import HeartbeatBuffer
from sweep.pilot.agent.kernel_log import KernelWatch
from sweep.pilot.agent.processes import Activity, left_on_gpus, present
from sweep.pilot.agent.progress import Report, failure
from sweep.pilot.agent.ranks import KEPT_BYTES, Rank, one_per_process, start_ranks
from sweep.pilot.channel import AgentChannel
from sweep.pilot.clock import PausingClock
from sweep.pilot.messages import (
    Busy,
    ChannelError,
    Clean,
    Failed,
    Heartbeats,
    Measured,
    NotPrepared,
    Prepare,
    Prepared,
    RankExited,
    RankFailure,
    RankRemains,
    Start,
    Stop,
)

GPU_WAIT_S = 20.0
"""how long the driver may take to free the GPUs of killed processes: half of the leader's CLEAN_S, with evidence and
kills in the other half"""
ABANDON_GRACE_S = 1.0
"""no process waits for what ranks report in their last seconds"""
HEARTBEAT_FLUSH_S = 0.1
"""heartbeats are collected for so long: nothing against the shortest time-out of a rank, 20 s unless the grid sets
less"""
TAIL_BYTES = 32_000
_FULL = Outcome.DISK_FULL
_OF_THE_NODE = {errno.ENOSPC: _FULL, errno.EDQUOT: _FULL, errno.EADDRINUSE: Outcome.PORT_IN_USE}
"""error number -> outcome of an attempt that cannot start"""


@dataclass(frozen=True)
class Node:
    """The agent's view of its node."""

    name: str
    index: int
    scratch: Path
    """the pilot's directory on this node"""
    temporary: Path
    """TMPDIR of the ranks"""
    clock: PausingClock


class NodeAttempt:
    """One attempt on this node, from Prepare to Clean."""

    def __init__(self, message: Prepare, node: Node, fork_servers: ForkServerPool, channel: AgentChannel) -> None:
        self.ranks: list[Rank] = []
        self._wanted = message
        self._name = message.attempt
        self._node = node
        self._fork_servers = fork_servers
        self._channel = channel
        self._scratch = node.scratch / message.attempt
        self._began_at, self._before = time.time(), present()
        self._kernel = KernelWatch(node.name)
        self._listener: socket.socket | None = None
        self._checkpoint_dir = ""
        self._heartbeats = HeartbeatBuffer()
        self._activity = Activity()

    async def prepare(self) -> None:
        """Get a fork server, a scratch directory and, on the first node, a listening socket; then report."""
        try:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            await self._fork_server()
            address, port = None, None
            if self._wanted.first:  # before any rank starts: it is passed on open, so the port cannot be taken
                address = self._wanted.address or self._channel.local_address
                self._listener = listen_on_free_port(address)
                port = int(self._listener.getsockname()[1])
        except (ForkServerError, OSError) as error:
            self._not_started(error)
            return
        self._channel.send(Prepared(attempt=self._name, master_addr=address, master_port=port))

    async def start(self, message: Start) -> None:
        """Start the ranks."""
        fork_server = await self._fork_server()
        self._checkpoint_dir = message.places[0].checkpoint_dir if message.places[0].rank == 0 else ""
        if not message.takes_listener:
            self._close_listener()
        for places in [message.places] if message.one_process else [(place,) for place in message.places]:
            await self._start_process(fork_server, message, places)
        self._close_listener()

    async def stop(self, message: Stop) -> None:
        """End the attempt: evidence, kill, checks; report the findings; then remove its files."""
        stacks = await evidence.gather(self.ranks, self._scratch) if message.evidence else {}
        killed = [rank.number for rank in self.ranks if rank.alive]
        not_ended = await self._end_ranks(message.grace_s, short=message.short)
        self._flush()
        remains = [
            RankRemains(
                rank=rank.number,
                killed=rank.number in killed,
                tail=end_of(rank.log, KEPT_BYTES if rank.number == 0 else TAIL_BYTES),
                stacks=stacks.get(rank.number, ""),
            )
            for rank in self.ranks
        ]
        self._channel.send(
            Clean(
                attempt=self._name,
                ranks=tuple(remains),
                not_ended=tuple(not_ended),
                kernel=self._kernel.facts(rank.pid for rank in self.ranks if rank.pid),
                sources=self._kernel.sources,
                removed=tuple(remove_shared_memory(self._began_at)),
            )
        )
        self._leave()

    async def abandon(self) -> list[str]:
        """The leader is lost: end the ranks, without a report. Returns the processes that could not be ended."""
        not_ended = await self._end_ranks(ABANDON_GRACE_S)
        self._leave()
        return not_ended

    async def _end_ranks(self, grace_s: float, *, short: bool = False) -> list[str]:
        spared = [fork_server.pid for fork_server in self._fork_servers.fork_servers]
        not_ended = await clear(self.ranks, spared, grace_s, self._fork_servers.reap, self._before)
        return not_ended if not_ended or short else await asyncio.to_thread(left_on_gpus, GPU_WAIT_S, self._began_at)

    def report_busy(self) -> None:
        """Report ranks that do work before their first iteration: a slow start is no hang."""
        early = [rank for rank in self.ranks if rank.alive and not self._heartbeats.iterates(rank.number)]
        pids = [rank.pid for rank in one_per_process(early) if rank.pid is not None]
        working = {pid for pid in pids if self._activity.busy(pid)}
        busy = tuple(rank.number for rank in early if rank.pid in working)
        if busy:
            self._channel.send(Busy(attempt=self._name, ranks=busy))

    async def bound_output(self) -> None:
        """Trim the ranks' logs, in a thread: their disk may be slow. Report those that write much."""
        ranks = one_per_process(self.ranks)
        wrote = await asyncio.to_thread(lambda: [rank.log for rank in ranks if rank.trim_log()])
        if writing := tuple(rank.number for rank in self.ranks if rank.log in wrote):
            self._channel.send(Busy(attempt=self._name, ranks=writing, writing=True))

    async def _fork_server(self) -> ForkServer:
        env = {**compile_workers(self._wanted.ranks), **self._wanted.env}
        return await self._fork_servers.get(self._wanted.preload, env)

    async def _start_process(self, fork_server: ForkServer, message: Start, places: Sequence[Place]) -> None:
        """One process, for the ranks of these places."""
        here = [replace(p, scratch_dir=str(self._scratch), ranks_in_process=len(places)) for p in places]
        log = self._scratch / f"rank{here[0].rank}.log"
        ranks = [Rank(place.rank, log) for place in here]
        self.ranks += ranks
        env = {**self._environment(), **self._wanted.env, **here[0].torchrun_variables()}
        env |= here[0].slurm_variables() if message.slurm_variables else {}
        request = ForkRequest(main=message.main, run=message.run, places=tuple(here), env=env)
        listener = self._listener if here[0].rank == 0 else None
        try:
            await start_ranks(fork_server, ranks, request, listener, self._on_reports, self._on_exit)
        except (ForkServerError, OSError) as error:
            self._not_started(error)

    def _not_started(self, error: ForkServerError | OSError) -> None:
        """Nothing of the run failed: no interpreter that starts, no space left, no free port, no more processes."""
        outcome = _OF_THE_NODE.get(getattr(error, "errno", 0) or 0, Outcome.UNKNOWN)
        self._channel.send(NotPrepared(attempt=self._name, outcome=outcome, error=str(error)))

    def _environment(self) -> dict[str, str]:
        """Defaults of the ranks: temporary files on this node, compiled code stored for the pilot's next runs.

        torch and triton store that in the home directory: on a shared file system, with lock files that outlive killed
        ranks, so that the next build waits indefinitely (torch.utils.cpp_extension's FileBaton).
        """
        scratch = self._node.scratch
        defaults = {
            "TMPDIR": str(self._node.temporary),
            "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
            "TRITON_CACHE_DIR": f"{scratch}/triton",
            "TORCH_EXTENSIONS_DIR": f"{scratch}/extensions",
            **evidence.flight_recorder_environment(self._scratch),
        }
        users = {name: os.environ[name] for name in defaults if name in os.environ and name != "TMPDIR"}
        return {**defaults, **users}

    def _on_reports(self, rank: Rank, reports: Sequence[Report]) -> None:
        for report in reports:
            if isinstance(report, RankFailure):
                self._failed(rank, report)
            elif isinstance(report, Measurement):
                try:
                    self._channel.send(Measured(attempt=self._name, rank=rank.number, measurement=report))
                except ChannelError as error:
                    self._failed(rank, failure("ValueError", error))
            else:
                if not self._heartbeats:
                    asyncio.get_running_loop().call_later(HEARTBEAT_FLUSH_S, self._flush)
                self._heartbeats.add(rank.number, report, self._node.clock.now())

    def _failed(self, rank: Rank, what: RankFailure) -> None:
        self._channel.send(Failed(attempt=self._name, rank=rank.number, failure=what))

    def _on_exit(self, rank: Rank) -> None:
        self._flush()
        code, number = rank.exit_code_and_signal()
        self._channel.send(RankExited(attempt=self._name, rank=rank.number, exit_code=code, signal=number))

    def _flush(self) -> None:
        if self._heartbeats:
            self._channel.send(Heartbeats(attempt=self._name, heartbeats=self._heartbeats.take(self._node.clock.now())))

    def _leave(self) -> None:
        for rank in self.ranks:
            rank.close_progress()
        self.ranks.clear()
        self._close_listener()
        self._kernel.close()
        if self._checkpoint_dir:  # in a thread: a shared file system may be slow
            Thread(target=shutil.rmtree, args=(self._checkpoint_dir, True), daemon=True).start()
        remove_scratch(self._scratch)
        empty(self._node.temporary)

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None


def compile_workers(ranks: int) -> dict[str, str]:
    """Share the node's cores between the compilers of its ranks: by default torch starts up to 32 workers for each.

    Set before the fork server starts: torch reads it when it is imported. The user's own value is kept.
    """
    name = "TORCHINDUCTOR_COMPILE_THREADS"
    cores = len(os.sched_getaffinity(0))
    return {name: os.environ.get(name) or str(min(32, max(1, cores // ranks)))}
