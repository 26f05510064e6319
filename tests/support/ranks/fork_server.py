"""A preloaded fork server that forks ranks: started once per test session, so that no rank pays for imports.

Reads one JSON request a line on stdin, writes one JSON answer a line on stdout. Not a test double: the ranks are real
processes that run the workload's own entry point.
"""

import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

from sweep.contract import Progress, RankRun, Run
from sweep.plugins import WORKLOAD, load_object
from tests.support.simulated import place


def serve() -> None:
    for name in sys.argv[1:]:
        for module in WORKLOAD.find(name).preload:
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    print(json.dumps({"threads": len(list(Path("/proc/self/task").iterdir()))}), flush=True)
    for line in sys.stdin:
        print(json.dumps(attempt(json.loads(line))), flush=True)


def attempt(request: dict) -> list[dict]:
    """Run all ranks of one attempt; what each reported, how it ended, and the tail of its stderr."""
    run = Run.from_json(request["run"])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        ranks = [_fork(run, rank, listener, request) for rank in range(run.gpus)]
    deadline = time.monotonic() + request["timeout_s"]
    return [_gather(*rank, deadline) for rank in ranks]


def _fork(run: Run, rank: int, listener: socket.socket, request: dict) -> tuple:
    read, write = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
    child = os.fork()
    if child == 0:
        os.close(read)
        _become_rank(run, rank, listener, write, errors.fileno(), request)
    os.close(write)
    return child, read, errors


def _become_rank(run: Run, rank: int, listener: socket.socket, fd: int, errors: int, request: dict) -> None:
    code = 1
    progress = Progress(fd)
    try:
        os.dup2(errors, 2)
        os.dup2(errors, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        fd, port = listener.fileno() if rank == 0 else None, listener.getsockname()[1]
        at = place(rank, run.gpus, master_port=port, master_listen_fd=fd, **request["place"])
        if rank:
            listener.close()
        load_object(request["main"] or WORKLOAD.find(run.workload).main)(RankRun.of(run, at), progress)
        code = 0
    except BaseException as error:
        traceback.print_exc()
        progress.failed(error)
    finally:
        os._exit(code)


def _gather(child: int, read: int, errors, deadline: float) -> dict:
    killed = False
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline and not killed:
            os.kill(child, signal.SIGKILL)
            killed = True
        time.sleep(0.005)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with os.fdopen(read) as pipe:
        messages = [json.loads(line) for line in pipe]
    errors.seek(0)
    tail = errors.read()[-6000:].decode(errors="replace")
    return {"exit": status, "killed": killed, "messages": messages, "stderr": tail}


if __name__ == "__main__":
    serve()
