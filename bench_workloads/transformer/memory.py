"""Peak memory of a rank, by the allocator's statistics."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench_workloads.transformer.cpu_memory import peak_tensor_bytes

_PEAKS = (
    "allocated_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "reserved_bytes.all.peak",
    "inactive_split_bytes.all.peak",
    "segment.all.peak",
)
_COUNTERS = (
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "num_sync_all_streams",
)


@dataclass(frozen=True)
class Peaks:
    """Peak bytes; None where unknown."""

    allocated_bytes: int | None
    reserved_bytes: int | None
    kind: str
    """what is counted, and when"""


class Memory:
    """Peaks from its construction until ``stop``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._start = torch.cuda.memory_stats(device)

    def stop(self) -> None:
        """The iterations that count are over."""
        if self._device.type == "cuda":
            self._end = torch.cuda.memory_stats(self._device)

    def peaks(self, iteration: Callable[[], object], watch_cpu: bool) -> Peaks:
        """The peaks. On CPU they take one more profiled iteration, and reserved bytes have no meaning."""
        if self._device.type == "cuda":
            allocated, reserved = (self._end[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved"))
            return Peaks(allocated, reserved, "the allocator's peak over the timed iterations")
        peak = peak_tensor_bytes(iteration) if watch_cpu else None
        return Peaks(peak, None, "tensors alive at once in one further iteration")

    def further(self) -> dict[str, Any]:
        """The process' resident set, and on a GPU the allocator's counters and the memory outside torch."""
        unit = 1 if sys.platform == "darwin" else 1024
        found: dict[str, Any] = {"peak_resident_set_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            found["allocator"] = {name: self._end.get(name) for name in _PEAKS}
            found["allocator_new"] = {n: self._end.get(n, 0) - self._start.get(n, 0) for n in _COUNTERS}
            found["device_memory_bytes"] = total
            found["device_memory_not_torch_bytes"] = total - free - torch.cuda.memory_reserved(self._device)
        return found
