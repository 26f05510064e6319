"""Tier ``login``: read this host and evaluate it. No allocation; every reader at once, each with a time limit."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.checks.check import Check, CheckResult, Json, Reading, Stated, evaluate, readers, result
from sweep.checks.login import LOGIN, READ, SLURM
from sweep.doctor.login_readers import LIMIT_S, LoginReaders, UnreadableError
from sweep.inputs.site import Site
from sweep.plugins import load_object

PATIENCE_S = LIMIT_S + 1.0
"""a reader runs one command of at most LIMIT_S; a file system that hangs is given up, too"""


def check_login(site: Site, executor: str, directory: Path, more: Sequence[Check] = ()) -> list[CheckResult]:
    """Every check of the tier here. ``directory``: where sweeps go. ``more``: of other packages."""
    checks = [check for check in (*LOGIN, *more) if executor == "slurm" or check not in SLURM]
    built_in = LoginReaders(site, executor, directory)

    def function(reader: str) -> Callable[[], Json]:
        module, _, name = reader.partition(":")
        found: Callable[[], Json] = getattr(built_in, name) if module == READ else load_object(reader)
        return found

    found = read(readers(checks), function)
    stated = Stated(gpu=site.gpu, gpus_per_node=site.gpus_per_node)
    return [result(check, socket.gethostname(), evaluate(check, found.get(check.reader), stated)) for check in checks]


def read(names: Sequence[str], function: Callable[[str], Callable[[], Json]]) -> dict[str, Reading]:
    """All at once; what does not answer in time is unreadable."""
    found: dict[str, Reading] = {}

    def one(name: str) -> None:
        began = time.monotonic()
        try:
            value, error = function(name)(), ""
        except UnreadableError as problem:
            value, error = None, str(problem)[:300]
        except Exception as problem:  # a reader may raise anything: unreadable is a verdict of its own
            value, error = None, f"{type(problem).__name__}: {problem}"[:300]
        found[name] = Reading(value=value, error=error, seconds=time.monotonic() - began)

    threads = {name: threading.Thread(target=one, args=(name,), daemon=True) for name in names}
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    late = Reading(error=f"no answer within {PATIENCE_S:g} s", seconds=PATIENCE_S)
    return {name: found.get(name, late) for name in names}
