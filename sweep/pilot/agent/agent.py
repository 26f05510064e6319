"""The process a pilot has on each of its nodes: starts ranks, forwards what they tell, clears up after them.

Free of torch and single-threaded. It runs one attempt at a time, so all its descendants but the zygotes are that
attempt's. When its leader is silent it ends its ranks, and the job: a job whose first node died stays RUNNING for ever
under --no-kill (seen on Slurm 22.05).
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from sweep.contract import Phase
from sweep.outcomes import Outcome
from sweep.pilot.agent import evidence
from sweep.pilot.agent.cleanup import clear, clear_dead, empty, make_temporary, remove_scratch, remove_shared_memory
from sweep.pilot.agent.kernel_log import KernelWatch
from sweep.pilot.agent.processes import (
    ACTIVITY_CHECK_S,
    NODE_MARK,
    PILOT_MARK,
    Activity,
    left_on_gpus,
    tokens_of_sweep,
)
from sweep.pilot.agent.ranks import Rank, Zygote, ZygoteError, one_per_process, start_ranks
from sweep.pilot.channel import Channel
from sweep.pilot.job import complain
from sweep.pilot.messages import is_beat

LEADER_SILENCE_S = 20.0
"""then the ranks are ended and the job cancelled, all within 30 s"""
GPU_WAIT_S = 20.0
CONNECT_TIMEOUT_S = 20.0
BEAT_FLUSH_S = 0.1
EARLY_ITERATIONS = 5
MAX_ZYGOTES = 3
RANK0_LOG_BYTES = 1 << 20
TAIL_BYTES = 32_000
PORTS = range(20_000, 32_768)
"""below Linux's ephemeral ports, so that no outgoing connection takes one in between"""


class Agent:
    """One node's hands. All methods run on one event loop; messages of the leader are handled in order."""

    def __init__(self, node: str, index: int, scratch: Path) -> None:
        self._node = node
        self._index = index
        self._scratch = scratch
        self._zygotes: dict[tuple[Any, ...], Zygote] = {}
        self._ranks: list[Rank] = []
        self._attempt = ""
        self._attempt_dir = scratch
        self._temporary = make_temporary(scratch)
        self._began_at = time.time()
        self._kernel: KernelWatch | None = None
        self._listener: socket.socket | None = None
        self._beats: dict[int, list[tuple[dict[str, Any], float]]] = {}
        self._heard_at = time.monotonic()
        self._channel: Channel | None = None

    async def serve(self, channel: Channel) -> bool:
        """Do what the leader says until it lets us go (True) or is lost (False)."""
        self._channel = channel
        channel.send({"is": "hello", "node": self._node, "index": self._index, **_host_facts()})
        channel.send({"is": "strays", "tokens": sorted(self._strays())})
        inbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        helpers = [
            asyncio.ensure_future(self._listen_to(channel, inbox)),
            asyncio.ensure_future(self._watch_leader(inbox)),
            asyncio.ensure_future(self._watch_activity()),
        ]
        try:
            while (message := await inbox.get()) is not None:
                if message["do"] == "leave":
                    return True
                await self._handle(message)
        finally:
            for helper in helpers:
                helper.cancel()
        return False

    async def _listen_to(self, channel: Channel, inbox: asyncio.Queue[dict[str, Any] | None]) -> None:
        """Take messages off the line at once, so that a long task (an import, a teardown) is not taken for silence."""
        while (message := await channel.receive()) is not None:
            self._heard_at = time.monotonic()
            inbox.put_nowait(message)
        inbox.put_nowait(None)

    async def end(self, grace_s: float) -> None:
        """Leave nothing behind."""
        await clear(self._ranks, [], grace_s, self.reap)
        remove_scratch(self._scratch)

    async def _handle(self, message: Mapping[str, Any]) -> None:
        if message["do"] == "prepare":
            await self._prepare(message)
        elif message["do"] == "start":
            await self._start(message)
        elif message["do"] == "stop":
            await self._stop(message)
        elif message["do"] == "clear_dead":
            await self._clear_dead(message["tokens"])

    def _strays(self) -> set[str]:
        """Tokens of this sweep's other pilots that have processes or files on this node."""
        own = os.environ.get(PILOT_MARK, "")
        prefix = own.rpartition("-")[0] + "-"
        if len(prefix) < 2:
            return set()
        folders = {path.name.partition(".")[0] for path in self._scratch.parent.glob(f"{prefix}*.*")}
        return {token for token in tokens_of_sweep(prefix) | folders if token != own}

    async def _clear_dead(self, tokens: list[str]) -> None:
        """Their jobs are gone, as the leader knows from the scheduler."""
        left = await clear_dead(tokens)
        for token in tokens:
            for path in self._scratch.parent.glob(f"{token}.*"):
                if path.is_dir() and path.stat().st_uid == os.getuid():
                    remove_scratch(path)
        self._send({"is": "cleared", "tokens": tokens, "left": left})

    async def _prepare(self, message: Mapping[str, Any]) -> None:
        """Have a warm image, a scratch directory and, on the first node, a listening socket."""
        self._attempt = message["attempt"]
        self._attempt_dir = self._scratch / self._attempt
        self._began_at = time.time()
        self._watch_kernel()
        answer: dict[str, Any] = {"is": "prepared", "attempt": self._attempt}
        try:
            self._attempt_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            zygote = await self._zygote(message["preload"], message["env"])
            answer["cold"] = zygote.cold
            if message["first"]:
                self._listener = _listen()
                answer |= {"address": self._address(), "port": self._listener.getsockname()[1]}
        except (ZygoteError, OSError) as error:
            answer |= {"error": str(error), "outcome": str(_outcome_of(error))}
        self._send(answer)

    async def _start(self, message: Mapping[str, Any]) -> None:
        zygote = await self._zygote(message["preload"], message["env"])
        if not message["takes_listener"]:
            self._close_listener()
        entries = message["ranks"]
        for group in [entries] if message["one_process"] else [[entry] for entry in entries]:
            await self._start_process(zygote, message, group)
        self._close_listener()

    async def _start_process(self, zygote: Zygote, message: Mapping[str, Any], entries: list[dict[str, int]]) -> None:
        """One process, for the ranks of these entries."""
        log = self._attempt_dir / f"rank{entries[0]['rank']}.log"
        ranks = [Rank(entry["rank"], log, message["attempt"]) for entry in entries]
        self._ranks += ranks
        places = [{**message["place"], **entry, "scratch_dir": str(self._attempt_dir)} for entry in entries]
        request = {
            "main": message["main"],
            "run": message["run"],
            "places": places,
            "env": {**self._environment(), **message["env"], **_torch_environment(places)},
        }
        listener = self._listener if entries[0]["rank"] == 0 else None
        try:
            await start_ranks(zygote, ranks, request, listener, self._on_progress, self._on_exit)
        except (ZygoteError, OSError) as error:
            for rank in ranks:
                self._not_started(rank, error)

    def _not_started(self, rank: Rank, error: Exception) -> None:
        """To the leader it is a rank that failed at once."""
        rank.status = 1 << 8
        told = {"type": type(error).__name__, "message": f"the rank could not be started: {error}", "traceback": ""}
        about = {"attempt": rank.attempt, "rank": rank.number}
        self._send({"is": "told", **about, "message": {"kind": "failure", **told}})
        self._send({"is": "exit", **about, "code": 1})

    async def _stop(self, message: Mapping[str, Any]) -> None:
        """End the attempt: evidence, the kill, the checks; then say what was found."""
        begun = time.monotonic()
        stacks = await evidence.gather(self._ranks, self._attempt_dir) if message["evidence"] else {}
        ours = [rank.number for rank in self._ranks if rank.alive]
        spare = [zygote.pid for zygote in self._zygotes.values()]
        left = await clear(self._ranks, spare, message["grace_s"], self.reap)
        if not left and not message["short"]:
            left = await asyncio.to_thread(left_on_gpus, GPU_WAIT_S)
        self._flush_beats()
        self._send(
            {
                "is": "clean",
                "attempt": self._attempt,
                "left": left,
                "killed": ours,
                "kernel": self._kernel_facts(),
                "removed": remove_shared_memory(self._began_at),
                "stacks": {str(k): v for k, v in stacks.items()},
                "tails": {str(r.number): r.tail(RANK0_LOG_BYTES if r.number == 0 else TAIL_BYTES) for r in self._ranks},
                "seconds": time.monotonic() - begun,
            }
        )
        for rank in self._ranks:
            rank.close_progress()
        self._ranks.clear()
        self._close_listener()
        self._leave_kernel()
        remove_scratch(self._attempt_dir)
        empty(self._temporary)

    def _watch_kernel(self) -> None:
        """Evidence: a kernel that tells it in another way must not cost the agent, and with it the node."""
        self._leave_kernel()
        try:
            self._kernel = KernelWatch()
        except Exception as error:
            complain(f"{self._node}: the kernel is not watched: {error!r}")

    def _kernel_facts(self) -> list[str]:
        try:
            return [] if self._kernel is None else self._kernel.facts(rank.pid for rank in self._ranks if rank.pid)
        except Exception as error:  # as above
            complain(f"{self._node}: what the kernel tells is not known: {error!r}")
            return []

    def _leave_kernel(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def _environment(self) -> dict[str, str]:
        """Defaults of the ranks: temporary files on this node, compiled kernels kept for the pilot's next runs."""
        defaults = {
            "TMPDIR": str(self._temporary),
            "TORCHINDUCTOR_CACHE_DIR": str(self._scratch / "inductor"),
            **evidence.flight_recorder_environment(self._attempt_dir),
        }
        users = {name: os.environ[name] for name in defaults if name in os.environ and name != "TMPDIR"}
        return {**defaults, **users}

    async def _zygote(self, preload: list[str], env: Mapping[str, str]) -> Zygote:
        """The warm image for these modules and this environment; the longest unused goes when there are too many."""
        key = (tuple(preload), tuple(sorted(env.items())))
        zygote = self._zygotes.pop(key, None)
        if zygote is None or zygote.dead:
            while len(self._zygotes) >= MAX_ZYGOTES:
                self._zygotes.pop(next(iter(self._zygotes))).close()
            zygote = await self._warm(preload, env)
        self._zygotes[key] = zygote
        return zygote

    async def _warm(self, preload: list[str], env: Mapping[str, str]) -> Zygote:
        """A zygote; where the modules do not allow one, an image that imports nothing (ranks then start cold)."""
        marked = {**env, PILOT_MARK: os.environ.get(PILOT_MARK, ""), NODE_MARK: self._node}
        try:
            return await Zygote.start(preload, marked)
        except ZygoteError as error:
            complain(f"{self._node}: ranks start cold: {error}")
            zygote = await Zygote.start([], marked)
            zygote.cold = True
            return zygote

    def _on_progress(self, rank: Rank, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message.get("kind") == "beat":
                if not is_beat(message.get("phase"), message.get("iteration"), message.get("due_s")):
                    continue
                if not self._beats:
                    asyncio.get_running_loop().call_later(BEAT_FLUSH_S, self._flush_beats)
                kept = self._beats.setdefault(rank.number, [])
                # The first beats tell the watcher how long an iteration is; of later ones the last tells all.
                if rank.iterates and (message.get("iteration") or 0) > EARLY_ITERATIONS:
                    kept.clear()
                kept.append((message, time.monotonic()))
                rank.iterates = message["phase"] in (Phase.STEADY, Phase.FINISH)
            else:
                self._send({"is": "told", "attempt": rank.attempt, "rank": rank.number, "message": message})

    def _flush_beats(self) -> None:
        if not self._beats:
            return
        now = time.monotonic()
        beats = [
            [number, beat["phase"], beat.get("iteration"), beat.get("due_s"), now - at]
            for number, kept in self._beats.items()
            for beat, at in kept
        ]
        self._beats.clear()
        self._send({"is": "beats", "attempt": self._attempt, "beats": beats})

    def _on_exit(self, rank: Rank) -> None:
        self._flush_beats()
        code, number = rank.exit_code_and_signal()
        self._send({"is": "exit", "attempt": rank.attempt, "rank": rank.number, "code": code, "signal": number})

    def reap(self) -> None:
        """Collect orphans that came back to us, and notice a zygote that died."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for key, zygote in list(self._zygotes.items()):
                if zygote.pid == pid:
                    del self._zygotes[key]
                    zygote.died()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._channel is not None:
            self._channel.send(message)

    def _address(self) -> str:
        return self._channel.local_address if self._channel is not None else "127.0.0.1"

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _watch_activity(self) -> None:
        """Tell which ranks work though they have not begun to iterate: a slow start is no hang."""
        activity = Activity()
        while True:
            await asyncio.sleep(ACTIVITY_CHECK_S)
            early = [rank for rank in self._ranks if rank.alive and not rank.iterates]
            working = {rank.pid for rank in one_per_process(early) if rank.pid is not None and activity.busy(rank.pid)}
            busy = [rank.number for rank in early if rank.pid in working]
            if busy:
                self._send({"is": "busy", "attempt": self._attempt, "ranks": busy})

    async def _watch_leader(self, inbox: asyncio.Queue[dict[str, Any] | None]) -> None:
        while time.monotonic() - self._heard_at < LEADER_SILENCE_S:
            await asyncio.sleep(1.0)
        inbox.put_nowait(None)


def _outcome_of(error: Exception) -> Outcome:
    """Why a node could not be made ready: no space left, no free port, or no interpreter that starts."""
    if not isinstance(error, OSError):
        return Outcome.UNKNOWN
    return Outcome.DISK_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else Outcome.PORT_IN_USE


def _listen() -> socket.socket:
    """A listening socket for rank 0: bound before any rank starts and handed over open, so the port cannot be lost."""
    for port in random.sample(PORTS, 64):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(1024)
        except OSError:
            listener.close()
            continue
        return listener
    raise OSError(errno.EADDRINUSE, f"none of 64 ports in {PORTS.start}-{PORTS.stop - 1} is free")


def _torch_environment(places: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What torchrun would set, for code that reads it from there; a process of several ranks is none of them."""
    first = places[0]
    common = {
        "WORLD_SIZE": str(first["world_size"]),
        "LOCAL_WORLD_SIZE": str(first["local_world_size"]),
        "GROUP_RANK": str(first["node_rank"]),
        "MASTER_ADDR": str(first["master_addr"]),
        "MASTER_PORT": str(first["master_port"]),
    }
    own = {"RANK": str(first["rank"]), "LOCAL_RANK": str(first["local_rank"])}
    return common if len(places) > 1 else {**own, **common}


def _host_facts() -> dict[str, Any]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else psutil.cpu_count()
    return {"host": socket.gethostname(), "pid": os.getpid(), "cpus": cpus}
