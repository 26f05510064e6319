"""Runs readers, each in a thread of its own with a time limit: a file of a broken device may never answer."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sweep.contract import Measurement, Phase

if TYPE_CHECKING:
    from sweep.contract import Progress, RankRun

READER_S = 15.0
"""one reader's time, as Primus gives each GPU's process"""


def main(run: RankRun, progress: Progress) -> None:
    """Read what the parameter ``readers`` names, and report it: one rank per node, no rendezvous, no torch."""
    progress.heartbeat(Phase.START)
    began = time.perf_counter()
    found = read_all(str(run.params["readers"]).split(","))
    progress.measured(Measurement(step_times_s=[time.perf_counter() - began], extra={"readings": found}))
    progress.heartbeat(Phase.FINISH)


def read_all(readers: Sequence[str], limit_s: float = READER_S) -> dict[str, dict[str, Any]]:
    """Reader ("module:function") -> value, error and seconds. All run at once; none is waited for beyond the limit."""
    found: dict[str, dict[str, Any]] = {}
    began = time.monotonic()
    threads = {}
    for reader in readers:
        threads[reader] = threading.Thread(target=_read, args=(reader, found), daemon=True)
        threads[reader].start()
    for reader, thread in threads.items():
        thread.join(max(0.0, began + limit_s - time.monotonic()))
        if thread.is_alive():
            found[reader] = {"error": f"no answer within {limit_s:g} s", "seconds": limit_s}
    return {reader: dict(found[reader]) for reader in readers}


def _read(reader: str, found: dict[str, dict[str, Any]]) -> None:
    began = time.monotonic()
    try:
        module, _, name = reader.partition(":")
        function: Callable[[], Any] = getattr(importlib.import_module(module), name)
        answer: dict[str, Any] = {"value": function()}
    except Exception as error:  # a reader may raise anything: unreadable is a verdict of its own
        answer = {"error": f"{type(error).__name__}: {error}"[:300]}
    found.setdefault(reader, {**answer, "seconds": round(time.monotonic() - began, 3)})
