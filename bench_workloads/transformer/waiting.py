"""A rank's time in collectives: the rest of a step is its own work, which identifies a straggler.

Every rank's step lasts as long as the slowest rank's. The straggler is the one that waits least.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch._C import _distributed_c10d as c10d
from torch.distributed import _functional_collectives as functional

if TYPE_CHECKING:
    import torch

    from sweep.contract import Layout


WATCHDOG_S = 0.3
"""three rounds of torch's watchdog"""
BUFFER_VARIABLE = "TORCH_FR_BUFFER_SIZE"
"""entries of the flight recorder"""


def prepare(device: torch.device, collectives: int) -> None:
    """Let NCCL time its kernels, and remember so many. Call before the process group is created."""
    if device.type == "cuda":
        os.environ.setdefault("TORCH_NCCL_ENABLE_TIMING", "1")
        os.environ[BUFFER_VARIABLE] = str(max(int(os.environ.get(BUFFER_VARIABLE) or 0), 2 * collectives))


@contextmanager
def collective_time(device: torch.device) -> Iterator[Waits | FlightRecorder]:
    """Watch the collectives of this process: a GPU's run concurrently with the host, so each device has its class."""
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
        self.unknown: str | None = None
        """why the last lap is not known"""

    def catch_up(self) -> None:
        """Nothing is outstanding."""

    def start(self) -> None:
        """Count from here on. Takes no time, so that the ranks begin together. Call it after the barrier."""
        self._seconds = 0.0

    def lap(self) -> float:
        """Seconds in collectives since ``start``."""
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
    """On a GPU the flight recorder has the time of each NCCL kernel, waiting for its peers included.

    A kernel's duration appears once torch's watchdog has looked at it, which it does every 100 ms.
    """

    def __init__(self) -> None:
        names = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
        self._dump = next((getattr(c10d, name) for name in names if hasattr(c10d, name)), None)
        self._seen = -1
        self.unknown: str | None = None
        """why the last lap has no time"""
        self.catch_up()

    def catch_up(self) -> None:
        """Read what is outstanding: waits for the watchdog, up to ``WATCHDOG_S``, each rank another time.

        Call it before the ranks meet at a barrier.
        """
        self.lap()

    def start(self) -> None:
        """As of ``Waits``. The barrier since ``catch_up`` is known by its name."""

    def lap(self) -> float | None:
        """As of ``Waits``, the barrier apart; None where not known. Call it after a synchronisation of the device."""
        if self._dump is None:
            self.unknown = "this torch has no flight recorder that can be read"
            return None
        deadline = time.monotonic() + WATCHDOG_S
        new = self._new()
        while (late := _without_duration(new)) and time.monotonic() < deadline:
            time.sleep(0.01)
            new = self._new()
        lost = bool(new) and self._seen >= 0 and new[0]["record_id"] > self._seen + 1
        self._seen = max((entry["record_id"] for entry in new), default=self._seen)
        self.unknown = None
        if lost:
            self.unknown = f"the flight recorder's buffer of {os.environ.get(BUFFER_VARIABLE)} entries was too small"
        elif late:
            self.unknown = (
                f"{late} of {len(new)} collectives have no duration after {WATCHDOG_S:g} s (TORCH_NCCL_ENABLE_TIMING)"
            )
        if self.unknown is not None:
            return None
        # A barrier is an all-reduce of this name (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).
        counted = (entry for entry in new if "barrier" not in str(entry.get("profiling_name", "")))
        return sum(entry.get("duration_ms") or 0.0 for entry in counted) / 1e3

    def _new(self) -> list[dict[str, Any]]:
        """Entries since the last lap, oldest first."""
        entries = json.loads(self._dump(True, False)).get("entries", []) if self._dump else []
        return [entry for entry in entries if entry["record_id"] > self._seen]


def _without_duration(entries: list[dict[str, Any]]) -> int:
    """NCCL's completed collectives whose duration is not known yet.

    Others never get one: those of another backend, and the single operations of a batch, which have no events.
    """
    of_nccl = [e for e in entries if str(e.get("profiling_name", "nccl:")).startswith("nccl:")]
    return sum(e.get("duration_ms") is None and e.get("state", "completed") == "completed" for e in of_nccl)


def most_collectives(layout: Layout, layers: int) -> int:
    """An upper bound of the collectives in one step of a rank.

    Per micro-batch and layer: FSDP gathers twice and scatters once (twice with experts apart); tp gathers and scatters
    around attention and MLP in forward, backward and recomputation (12); cp gathers or exchanges (4 each way); ep
    exchanges three times each way; and a pipeline sends and receives. Norm, loss and tied embeddings are the rest.
    """
    per_layer = 6 + 12 * (layout.tp > 1) + 12 * (layout.cp > 1) + 9 * (layout.ep > 1)
    return layout.grad_accum * (layers * per_layer + 8) + 64
