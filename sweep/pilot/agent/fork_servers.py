"""The agent's fork servers: processes that imported a workload's modules, to fork ranks from."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence

from bench_workloads.interpreter import module_command
from sweep.errors import log_error
from sweep.pilot.agent.fork_messages import Answer, ForkRequest, encode
from sweep.pilot.agent.processes import NODE_MARK, PILOT_MARK

PRELOAD_TIMEOUT_S = 240.0
"""below the default limit of a start (300 s): a slow import is reported as one"""
FORK_TIMEOUT_S = 60.0
"""a fork takes milliseconds; a fork server that is swapped out or stopped may take long"""
READ_BYTES = 1 << 16
MAX_FORK_SERVERS = 3
TASK_PREFIXES = ("SLURM_", "PMI_", "PMI2_", "PMIX_")
OF_THE_JOB = frozenset({"SLURM_JOB_ID", "SLURM_CLUSTER_NAME", "SLURM_CONF"})
"""what is the same for a rank: it identifies the job and locates Slurm"""


class ForkServerError(Exception):
    """A fork server could not be started, or has ended."""


class ForkServer:
    """A preloaded process of one (workload, environment). Made by `ForkServer.start`."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self.pid = process.pid
        self.dead = False
        """no more ranks can be forked from it"""
        self._process = process
        self._control = control
        self._unread = b""
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()
        self._on_exit: dict[int, Callable[[int], None]] = {}
        self._early: dict[int, int] = {}
        """exits that were reported before their fork's answer was processed"""
        asyncio.get_running_loop().add_reader(control, self._read)

    @classmethod
    async def start(cls, preload: Sequence[str], env: Mapping[str, str]) -> ForkServer:
        """Start a fork server and wait until it has imported the modules. Raises ForkServerError with the reason."""
        # Not what describes the agent as a task of its job step, one per node: a rank that reads that (PyTorch
        # Lightning, accelerate, mpi4py, JAX) takes the number of agents for its world size.
        inherited = {n: value for n, value in os.environ.items() if n in OF_THE_JOB or not n.startswith(TASK_PREFIXES)}
        control, remote = socket.socketpair()
        command = module_command("sweep.pilot.agent.fork_server", str(remote.fileno()), str(os.getpid()))
        process = subprocess.Popen(
            [*command, *preload],
            env={**inherited, **env},
            pass_fds=[remote.fileno()],
            stdin=subprocess.DEVNULL,
        )
        remote.close()
        control.setblocking(False)
        fork_server = cls(process, control)
        try:
            answer = await asyncio.wait_for(fork_server._answers.get(), PRELOAD_TIMEOUT_S)
        except asyncio.TimeoutError:
            fork_server.close()
            raise ForkServerError(f"importing {', '.join(preload)} took over {PRELOAD_TIMEOUT_S:.0f} s") from None
        if answer.error is not None:
            fork_server.close()
            raise ForkServerError(answer.error)
        return fork_server

    async def fork(self, request: ForkRequest, fds: Sequence[int], on_exit: Callable[[int], None]) -> int:
        """Fork one process; returns its pid. `on_exit` is called with the wait status. Raises ForkServerError."""
        line = encode(request)
        try:
            sent = socket.send_fds(self._control, [line], list(fds))
            if sent < len(line):
                await asyncio.get_running_loop().sock_sendall(self._control, line[sent:])
        except OSError as error:
            raise ForkServerError(f"the fork server has ended: {error}") from error
        try:
            answer = await asyncio.wait_for(self._answers.get(), FORK_TIMEOUT_S)
        except asyncio.TimeoutError:
            self.died()  # its late answer would be mistaken for another's
            raise ForkServerError(f"the fork server did not fork in {FORK_TIMEOUT_S:.0f} s") from None
        if answer.pid is None:
            raise ForkServerError(answer.error or "unexpected answer from the fork server")
        if answer.pid in self._early:
            asyncio.get_running_loop().call_soon(on_exit, self._early.pop(answer.pid))
        else:
            self._on_exit[answer.pid] = on_exit
        return answer.pid

    def died(self) -> None:
        """The fork server ended: its ranks died with it (PDEATHSIG), their statuses are unknown."""
        self.dead = True
        self.close()
        self._answers.put_nowait(Answer(error="the fork server ended"))
        for on_exit in list(self._on_exit.values()):
            on_exit(signal.SIGKILL)
        self._on_exit.clear()

    def close(self) -> None:
        """Close its socket, which ends it."""
        with contextlib.suppress(ValueError, OSError):
            asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def _read(self) -> None:
        try:
            data = self._control.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.died()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            answer = Answer.decode(line)
            if answer.pid is None or answer.status is None:
                self._answers.put_nowait(answer)
            elif (on_exit := self._on_exit.pop(answer.pid, None)) is not None:
                on_exit(answer.status)
            else:
                self._early[answer.pid] = answer.status


class ForkServerPool:
    """A node's fork servers, keyed by modules and environment."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._fork_servers: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], ForkServer] = {}

    @property
    def fork_servers(self) -> list[ForkServer]:
        """All fork servers, least recently used first. They persist across attempts."""
        return list(self._fork_servers.values())

    async def get(self, preload: Sequence[str], env: Mapping[str, str]) -> ForkServer:
        """One for these, or where the modules cannot be preloaded one that imports nothing; the least recently used is
        closed when there are too many. Raises ForkServerError.
        """
        key = (tuple(preload), tuple(sorted(env.items())))
        fork_server = self._fork_servers.pop(key, None)
        if fork_server is None or fork_server.dead:
            while len(self._fork_servers) >= MAX_FORK_SERVERS:
                self._fork_servers.pop(next(iter(self._fork_servers))).close()
            marked = {**env, PILOT_MARK: os.environ.get(PILOT_MARK, ""), NODE_MARK: self._node}
            try:
                fork_server = await ForkServer.start(preload, marked)
            except ForkServerError as error:
                log_error(f"{self._node}: ranks start without preload: {error}")
                fork_server = await ForkServer.start([], marked)
        self._fork_servers[key] = fork_server
        return fork_server

    def reap(self) -> None:
        """Reap orphans reparented to this process, and detect fork servers that died."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for key, fork_server in list(self._fork_servers.items()):
                if fork_server.pid == pid:
                    del self._fork_servers[key]
                    fork_server.died()
