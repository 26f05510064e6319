"""The preloaded fork server: imports a workload's modules once, then forks every rank's process of the pilot from it.

A fork of a process with threads may inherit a held lock, so it refuses to fork when an import left a thread behind.
It never touches a GPU: a CUDA context does not survive a fork.

It serves the agent that started it, on one socket: `sweep.pilot.agent.fork_messages`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import NoReturn

import psutil

from sweep.contract import Measurement, Progress, RankRun, Run
from sweep.pilot.agent.fork_messages import Answer, ForkRequest, encode
from sweep.pilot.agent.processes import collapse_pages, die_with_parent, mark_descendants
from sweep.plugins import load_object

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
MAX_REQUEST_BYTES = 1 << 20
MAX_DESCRIPTORS = 253
"""what Linux takes in one message (SCM_MAX_FD)"""


def serve(control: socket.socket, preload: list[str]) -> None:
    """Import, report it (or why not), then fork ranks until the agent closes the socket."""
    began = time.perf_counter()
    trouble = _preload(preload)
    imports_s = time.perf_counter() - began
    gc.collect()
    gc.freeze()
    _send(control, Answer(error=trouble))
    if trouble is not None:
        return
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(wake_read, selectors.EVENT_READ)
    again = False
    while True:
        for key, _ in selector.select():
            if key.fd == wake_read:
                os.read(wake_read, 4096)
                again = _report_ends(control)
            elif not _answer(control, imports_s, again=again):
                return


def _preload(modules: list[str]) -> str | None:
    """Import the modules; returns an error text or None."""
    of_ranks = os.environ.get(BLAS_THREADS)
    os.environ[BLAS_THREADS] = "1"  # else OpenBLAS (numpy's) starts threads when it is loaded
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # any import may raise anything; the rank meets the same error and reports it
            return f"cannot import {module}: {type(error).__name__}: {error}"
    del os.environ[BLAS_THREADS]
    if of_ranks is not None:
        os.environ[BLAS_THREADS] = of_ranks
    threads = psutil.Process().num_threads()  # native ones too
    return f"{threads} threads after importing {', '.join(modules)}: a fork would not be safe" if threads > 1 else None


def _answer(control: socket.socket, imports_s: float, *, again: bool) -> bool:
    """Serve one request; False once the agent has ended. ``again``: after an attempt, so that there may be many."""
    data, fds, _, _ = socket.recv_fds(control, MAX_REQUEST_BYTES, MAX_DESCRIPTORS)
    if not data:
        return False
    while not data.endswith(b"\n"):
        data += control.recv(MAX_REQUEST_BYTES)
    if again:
        collapse_pages()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError as error:
        _send(control, Answer(error=f"cannot fork: {error}"))
        pid = -1
    if pid == 0:  # the forked process, which never returns
        control.close()
        signal.set_wakeup_fd(-1)
        code = 1
        try:
            os.setsid()
            die_with_parent(parent)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            run_ranks(ForkRequest.decode(data), fds, imports_s)
            code = 0
        finally:
            _leave(code)
    for fd in fds:
        os.close(fd)
    if pid > 0:
        _send(control, Answer(pid))
    return True


def _leave(code: int) -> NoReturn:
    """Exit the process, whatever other threads do."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


class _Pipe(Progress):
    """A rank's, which adds how long the imports took that it was forked after."""

    def __init__(self, fd: int, imports_s: float) -> None:
        super().__init__(fd)
        self._imports_s = imports_s

    def measured(self, measurement: Measurement) -> None:
        phases_s = {"imports": self._imports_s, **measurement.phases_s}
        super().measured(dataclasses.replace(measurement, phases_s=phases_s))


def run_ranks(request: ForkRequest, fds: list[int], imports_s: float) -> None:
    """Run the ranks of one process, the first in the main thread: take descriptors and environment, call the workload,
    report.
    """
    log, *further = fds
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request.env)
    tempfile.tempdir = None  # an import (torch's) asked for the fork server's: the rank's TMPDIR is its own
    count = len(request.places)
    listener = further[count] if len(further) > count else None
    places = [
        dataclasses.replace(place, ranks_in_process=count, master_listen_fd=None if place.rank else listener)
        for place in request.places
    ]
    faulthandler.enable()
    stacks = open(os.path.join(places[0].scratch_dir, f"stacks.{places[0].rank}"), "w")  # noqa: SIM115, PTH118, PTH123
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    run = Run.from_json(request.run)
    pipes = (_Pipe(fd, imports_s) for fd in further)
    ranks = [(request.main, RankRun.of(run, place), pipe) for place, pipe in zip(places, pipes, strict=False)]
    others = [threading.Thread(target=_run_rank, args=rank) for rank in ranks[1:]]
    for thread in others:
        thread.start()
    _run_rank(*ranks[0])
    for thread in others:
        thread.join()


def _run_rank(main: str, run: RankRun, progress: Progress) -> None:
    """Run one rank; where it fails, the whole process ends."""
    code = 0
    try:
        load_object(main)(run, progress)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # whatever a workload raises is the attempt's failure
        progress.failed(error)
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    if code:
        _leave(code)


def _report_ends(control: socket.socket) -> bool:
    """Whether all ranks have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            return False
        _send(control, Answer(pid, status))


def _send(control: socket.socket, answer: Answer) -> None:
    with contextlib.suppress(BrokenPipeError):
        control.sendall(encode(answer))


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    mark_descendants(os.environ)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[3:])
