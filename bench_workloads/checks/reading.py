"""Runs readers, each in a thread of its own with a time limit: a file of a broken device may never answer. And what
most of them need: the output of a command, within a limit too.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun

READER_S = 15.0
"""one reader's time, as Primus gives each GPU's process"""
COMMAND_S = 6.0
"""of one command on the login node, so that all are done in 10 s"""
_DEFAULTS = ("SINFO_", "SCONTROL_", "SRUN_", "SQUEUE_", "SACCT_", "SCANCEL_")
"""a user's for Slurm's clients: what they filter, and whether scancel asks before it acts"""


class UnreadableError(RuntimeError):
    """A reading that cannot be had; the message alone says why."""


def main(run: RankRun, progress: Progress) -> None:
    """Read what the parameter ``readers`` names, and report it: one rank per node, no rendezvous, no torch."""
    progress.heartbeat(Phase.START)
    began = time.perf_counter()
    found = read_all(str(run.params["readers"]).split(","))
    progress.measured(Measurement(step_times_s=[time.perf_counter() - began], extra={"readings": found}))
    progress.heartbeat(Phase.FINISH)


def imported(reader: str) -> Callable[[], Any]:
    """The function that "module:function" names."""
    module, _, name = reader.partition(":")
    function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return function


def read_all(
    readers: Sequence[str], limit_s: float = READER_S, find: Callable[[str], Callable[[], Any]] = imported
) -> dict[str, dict[str, Any]]:
    """Reader -> value, or error. All run at once; none is waited for beyond the limit.

    ``find``: reader -> the function that reads; called in the reader's thread, too.
    """
    found: dict[str, dict[str, Any]] = {}
    began = time.monotonic()
    threads = {}
    for reader in readers:
        threads[reader] = threading.Thread(target=_read, args=(reader, find, found), daemon=True)
        threads[reader].start()
    for reader, thread in threads.items():
        thread.join(max(0.0, began + limit_s - time.monotonic()))
        if thread.is_alive():
            found[reader] = {"error": f"no answer within {limit_s:g} s"}
    return {reader: dict(found[reader]) for reader in readers}


def _read(reader: str, find: Callable[[str], Callable[[], Any]], found: dict[str, dict[str, Any]]) -> None:
    try:
        answer: dict[str, Any] = {"value": find(reader)()}
    except UnreadableError as error:
        answer = {"error": str(error)[:300]}
    except Exception as error:  # a reader may raise anything: unreadable is a verdict of its own
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    found.setdefault(reader, answer)


def output(command: Sequence[str], limit_s: float = COMMAND_S, *, fails: bool = False) -> str:
    """What a command prints. Raises UnreadableError where it cannot be run or fails (unless ``fails``)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_DEFAULTS)}
    name = command[0]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            env=environment,
            check=False,
        )
    except FileNotFoundError as error:
        raise UnreadableError(f"{name} is not installed here") from error
    except OSError as error:
        raise UnreadableError(f"{name} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UnreadableError(f"{name} did not answer within {limit_s:g} s") from error
    if done.returncode and not fails:
        text = " ".join((done.stderr or done.stdout).split()).removeprefix(f"{name}: ")[-200:]
        raise UnreadableError(f"{name}: {text or f'exit {done.returncode}'}")
    return done.stdout


def answer(command: Sequence[str], limit_s: float, *, fails: bool = False) -> str:
    """What a command prints; empty where it gives no answer."""
    try:
        return output(command, limit_s, fails=fails)
    except UnreadableError:
        return ""
