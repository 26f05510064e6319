"""`sweep` commands in processes forked from one that has imported the product: a second of imports less for each.

What a command does after its imports is the same: a process of its own with its own arguments, environment and folder.
Tests of starting up, and of commands in the background, start Python again (tests.support.driving.start).
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import pwd
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

READ_AT_START = ("PYTHON", "LD_", "MPL", "OMP_", "OPENBLAS_", "MALLOC_", "ARROW_")
"""variables that Python or a library reads while it starts: with others than the server's, a command starts again"""

IMPORTED = ("pandas", "pyarrow.compute", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg")
IMPORTED += ("submitit", "bench_workloads.simulated", "bench_workloads.transformer")
"""besides the product itself"""

BY_ENVIRONMENT = ("sweep.trackers.",)
"""not before the command: trackers' clients read the environment where they are imported"""


class Server:
    """Forks commands, one at a time; ends with this process."""

    def __init__(self, *prefix: str) -> None:
        """``prefix``: a command that becomes this one, such as one that drops privileges."""
        self._environment = dict(os.environ)
        command = [*prefix, sys.executable, "-m", "tests.support.prepared"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._busy = threading.Lock()

    def _fits(self, environment: Mapping[str, str]) -> bool:
        """Whether a command with these variables would have imported the same modules in the same way."""
        names = {*self._environment, *environment}
        read = [name for name in names if name.startswith(READ_AT_START)]
        return all(self._environment.get(name) == environment.get(name) for name in read)

    def run(
        self, words: list[str], environment: Mapping[str, str], folder: Path, timeout_s: float, user: str | None = None
    ) -> subprocess.CompletedProcess[str] | None:
        """None where the command has to start again: for its variables, or since another thread's command runs.

        ``user``: another Unix user, who need not be able to start this Python; only root can become one.
        """
        if not self._fits(environment) or not self._busy.acquire(blocking=False):
            return None
        with contextlib.ExitStack() as stack:
            stack.callback(self._busy.release)
            out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            assert self._process.stdin is not None
            files = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, err)]
            request = {"words": words, "environment": dict(environment), "folder": str(folder), "files": files}
            print(json.dumps(request | {"user": user}), file=self._process.stdin, flush=True)
            pid = int(self._answer())
            ended = threading.Timer(timeout_s, os.kill, (pid, 9))
            ended.start()
            code = int(self._answer())
            late = not ended.is_alive()
            ended.cancel()
            out.seek(0)
            err.seek(0)
            texts = [file.read().decode() for file in (out, err)]
        if late:
            raise subprocess.TimeoutExpired(words, timeout_s, *texts)
        return subprocess.CompletedProcess(words, code, *texts)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def server() -> Server:
    """This process's own: one that a parent of this process has started answers that parent."""
    return _server_of(os.getpid())


@functools.cache
def _server_of(pid: int) -> Server:
    return Server()


def import_everything() -> None:
    """What any command imports, for processes that are forked from this one and share it."""
    import analysis
    import sweep

    for name in IMPORTED:
        importlib.import_module(name)
    for package in (analysis, sweep):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and not module.name.startswith(BY_ENVIRONMENT):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()


def _serve() -> None:
    """Fork a command for each line of the standard input; two lines of answer: its pid, its exit code."""
    import_everything()
    while line := sys.stdin.readline():
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(request: dict[str, Any]) -> NoReturn:
    from sweep.cli.main import main
    from tests.support import watched

    for number, path in enumerate(("/dev/null", *request["files"])):
        os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_RDWR | os.O_APPEND), number)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["user"] is not None:
        found = pwd.getpwnam(request["user"])
        os.setgroups([])
        os.setgid(found.pw_gid)
        os.setuid(found.pw_uid)
    os.chdir(request["folder"])
    sys.stdin, sys.argv, sys.path[0] = open(0), ["sweep", *request["words"]], request["folder"]  # noqa: SIM115
    code: int | str | None = 1
    if (seen := os.environ.pop(watched.VARIABLE, None)) is not None:
        watched.watch(seen)
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # as Python at its end
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve()
