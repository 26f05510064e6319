"""Peak memory of a rank, by the allocator's own account."""

from __future__ import annotations

import resource
import sys
from typing import Any

import torch

_COUNTERS = (
    "allocated_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "reserved_bytes.all.peak",
    "inactive_split_bytes.all.peak",
    "segment.all.peak",
    "num_alloc_retries",
    "num_ooms",
    "num_device_alloc",
    "num_device_free",
    "num_sync_all_streams",
)


class Memory:
    """Peaks from its construction on. On CPU torch's allocator keeps no count: the peaks are None."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._start: dict[str, Any] = {}
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._start = torch.cuda.memory_stats(device)

    def peak_allocated_bytes(self) -> int | None:
        """Most bytes of tensors at once."""
        return torch.cuda.max_memory_allocated(self._device) if self._device.type == "cuda" else None

    def peak_reserved_bytes(self) -> int | None:
        """Most bytes that torch held from the device at once."""
        return torch.cuda.max_memory_reserved(self._device) if self._device.type == "cuda" else None

    def extra(self) -> dict[str, Any]:
        """Further numbers: the process' resident set, and on a GPU the allocator's counters and what is not torch's."""
        unit = 1 if sys.platform == "darwin" else 1024
        found: dict[str, Any] = {"peak_resident_set_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}
        if self._device.type == "cuda":
            now = torch.cuda.memory_stats(self._device)
            free, total = torch.cuda.mem_get_info(self._device)
            found["allocator"] = {name: now.get(name) for name in _COUNTERS}
            found["allocator_new"] = {
                n: now.get(n, 0) - self._start.get(n, 0) for n in _COUNTERS if n.startswith("num_")
            }
            found["device_memory_bytes"] = total
            found["device_memory_not_torch_bytes"] = total - free - torch.cuda.memory_reserved(self._device)
        return found
