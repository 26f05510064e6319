"""Analysis of PyTorch's out-of-memory message: insufficient memory, or fragmentation.

Formats: c10/cuda/CUDACachingAllocator.cpp of PyTorch 1.4 to 2.x ("already allocated … reserved in total", later
"of which … is free … reserved by PyTorch but unallocated"; 2.0 and 2.1 spell "capacty").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SIZE = r"(?<![\d.])(\d{1,20}(?:\.\d{1,20})?) ?(bytes|[KMGT]i?B)"
_FACTORS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_FIELDS = {
    "tried_bytes": re.compile(r"Tried to allocate " + _SIZE, re.IGNORECASE),
    "total_bytes": re.compile(_SIZE + r" total capacity|total capaci?ty of " + _SIZE, re.IGNORECASE),
    "free_bytes": re.compile(r"of which " + _SIZE + r" is free|" + _SIZE + r" (?:is )?free", re.IGNORECASE),
    "allocated_bytes": re.compile(_SIZE + r" (?:is allocated by PyTorch|already allocated)", re.IGNORECASE),
    "reserved_bytes": re.compile(_SIZE + r" reserved in total", re.IGNORECASE),
    "unallocated_bytes": re.compile(_SIZE + r" is reserved by PyTorch but unallocated", re.IGNORECASE),
    "process_bytes": re.compile(r"this process has " + _SIZE, re.IGNORECASE),
}


@dataclass(frozen=True, kw_only=True)
class CudaMemory:
    """The figures of an out-of-memory message, in bytes; None if it does not state them."""

    tried_bytes: float | None = None
    total_bytes: float | None = None
    free_bytes: float | None = None
    allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    unallocated_bytes: float | None = None
    process_bytes: float | None = None

    @property
    def idle_bytes(self) -> float | None:
        """Reserved by the allocator and not in use."""
        if self.unallocated_bytes is not None:
            return self.unallocated_bytes
        if self.reserved_bytes is not None and self.allocated_bytes is not None:
            return max(0.0, self.reserved_bytes - self.allocated_bytes)
        return None

    @property
    def fragmented(self) -> bool:
        """The request would have fitted into idle memory of the allocator."""
        idle = self.idle_bytes
        return idle is not None and self.tried_bytes is not None and idle >= self.tried_bytes


def parse_cuda_memory(message: str) -> CudaMemory:
    """The figures of ``message``."""
    return CudaMemory(**{name: _bytes(pattern.search(message)) for name, pattern in _FIELDS.items()})


def cuda_memory_advice(message: str) -> str | None:
    """What to try, by the message's figures; None if it has none."""
    memory = parse_cuda_memory(message)
    if memory.tried_bytes is None:
        return None
    facts = f"{_gib(memory.tried_bytes)} were requested"
    if memory.free_bytes is not None:
        facts += f", {_gib(memory.free_bytes)} were free"
    if memory.total_bytes is not None:
        facts += f" of {_gib(memory.total_bytes)}"
    return f"{facts}. {_remedy(memory)}"


def _remedy(memory: CudaMemory) -> str:
    if memory.fragmented:
        return (
            f"Fragmentation: {_gib(memory.idle_bytes or 0.0)} are reserved but unused, enough for the request; leave a "
            "little more room, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True if it is not set yet (the "
            "built-in workload sets it)."
        )
    if memory.process_bytes is not None and memory.total_bytes is not None and memory.free_bytes is not None:
        others = memory.total_bytes - memory.free_bytes - memory.process_bytes
        if others > max(2**30, 0.1 * memory.total_bytes):
            return (
                f"Other processes hold about {_gib(others)} of this GPU: look for stale processes, or ranks that "
                f"share it."
            )
    return "Not fragmentation: lower the micro-batch size, raise tp, pp or the ZeRO stage, or recompute."


def _bytes(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    number, unit = (group for group in match.groups() if group is not None)
    return float(number) * _FACTORS[unit[0].lower()]


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
