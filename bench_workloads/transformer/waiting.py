"""A rank's time in collectives: the rest of a step is its own work, which identifies a straggler.

Every rank's step lasts as long as the slowest rank's. The straggler is the one that waits least.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from torch._C import _distributed_c10d as c10d
from torch.distributed import _functional_collectives as functional

if TYPE_CHECKING:
    import torch


class CollectiveTime(Protocol):
    """One class per device: a GPU's collectives run concurrently with the host."""

    def lap(self) -> float | None:
        """Seconds in collectives since the last call; None where they are not known."""


def prepare(device: torch.device) -> None:
    """Let NCCL time its kernels. Call before the process group is created."""
    if device.type == "cuda":
        os.environ.setdefault("TORCH_NCCL_ENABLE_TIMING", "1")


@contextmanager
def collective_time(device: torch.device) -> Iterator[CollectiveTime]:
    """Watch the collectives of this process."""
    if device.type == "cuda":
        yield FlightRecorder()
        return
    waits = Waits()
    with waits.watching():
        yield waits


class Waits:
    """On CPU a rank is in a collective while it waits for one."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def lap(self) -> float:
        """See ``CollectiveTime``."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time every wait: for a collective's work, and for a functional collective's tensor."""
        work_wait, tensor_wait = c10d.Work.wait, functional.wait_tensor
        c10d.Work.wait = self._timed(work_wait)  # type: ignore[method-assign]
        functional.wait_tensor = self._timed(tensor_wait)
        try:
            yield
        finally:
            c10d.Work.wait = work_wait  # type: ignore[method-assign]
            functional.wait_tensor = tensor_wait

    def _timed(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return wait(*args, **kwargs)
            finally:
                self._seconds += time.perf_counter() - start

        return timed


class FlightRecorder:
    """On a GPU the flight recorder has the time of each NCCL kernel, waiting for its peers included."""

    def __init__(self) -> None:
        names = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
        self._dump = next((getattr(c10d, name) for name in names if hasattr(c10d, name)), None)
        self._seen = -1
        self.lap()

    def lap(self) -> float | None:
        """See ``CollectiveTime``. None where the recorder is off, or has lost entries."""
        if self._dump is None:
            return None
        entries = json.loads(self._dump(True, False)).get("entries", [])
        new = [e for e in entries if e["record_id"] > self._seen]
        lost = bool(new) and new[0]["record_id"] > self._seen + 1 and self._seen >= 0
        self._seen = max((e["record_id"] for e in entries), default=self._seen)
        durations = [e.get("duration_ms") for e in new]
        return None if lost or None in durations else sum(durations) / 1e3
