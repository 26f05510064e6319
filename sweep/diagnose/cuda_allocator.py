"""The CUDA caching allocator: a verdict on the timed iterations from its counters, and what its out-of-memory message
says (insufficient memory, or fragmentation). Pure.

Keys: ``torch.cuda.memory_stats`` (c10/cuda/CUDACachingAllocator.h), of the timed iterations alone. Missing keys
(cudaMallocAsync leaves some at zero, older releases lack some) make a verdict unknown, never false.

Formats of messages: c10/cuda/CUDACachingAllocator.cpp of PyTorch 1.4 to 2.x ("already allocated … reserved in total",
later "of which … is free … reserved by PyTorch but unallocated"; 2.0 and 2.1 spell "capacty").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

GROWING = "expandable_segments:True"
_FRAGMENTED_SHARE = 0.15
"""fraction of reserved memory idle in split blocks above which fragmentation is reported"""
_ROUNDED_SHARE = 1.10
"""allocated over requested bytes"""
_NON_TORCH_BYTES = 2 * 2**30
"""what context, NCCL and libraries usually stay below; above it the finding is reported as text"""


@dataclass(frozen=True, kw_only=True)
class AllocatorVerdict:
    """One rank's allocator over the timed iterations. None if the counters are missing."""

    pressure: bool | None = None
    """cudaMalloc failed and the cache was flushed: the timing is not valid"""
    fragmented: bool | None = None
    cache_thrash: bool | None = None
    """segments were allocated from or returned to the device after the warm-up; to have grown once is none"""
    alloc_retries: int | None = None
    ooms: int | None = None
    device_allocs: int | None = None
    idle_share: float | None = None
    """idle bytes in split blocks over reserved bytes, 0 to 1"""
    rounding: float | None = None
    """allocated over requested bytes at the peak"""
    non_torch_bytes: int | None = None
    """used on the device beyond what torch reserved: context, NCCL, libraries, and other processes"""
    findings: tuple[str, ...] = ()


def verdict_of(
    counters: Mapping[str, float],
    peaks: Mapping[str, float],
    outside_torch_bytes: int | None = None,
    configuration: str = "",
) -> AllocatorVerdict:
    """The verdict from what the counters rose by over the timed iterations, and from the peaks in them.

    ``outside_torch_bytes``: used on the device at the end, less what torch had reserved. ``configuration``: the
    allocator's, as PYTORCH_CUDA_ALLOC_CONF states it.
    """
    retries, ooms = (int(counters[n]) if n in counters else None for n in ("num_alloc_retries", "num_ooms"))
    calls = [counters[name] for name in ("num_device_alloc", "num_device_free") if name in counters]
    allocs = int(sum(calls)) if calls else None
    share = _ratio(peaks.get("inactive_split_bytes.all.peak"), peaks.get("reserved_bytes.all.peak"))
    pressure = None if retries is None else retries > 0 or bool(ooms)
    verdict = AllocatorVerdict(
        pressure=pressure,
        fragmented=None if share is None or pressure is None else share > _FRAGMENTED_SHARE and pressure,
        cache_thrash=None if allocs is None else allocs > 1 or counters.get("num_device_free", 0) > 0,
        alloc_retries=retries,
        ooms=ooms,
        device_allocs=allocs,
        idle_share=share,
        rounding=_ratio(peaks.get("allocated_bytes.all.peak"), peaks.get("requested_bytes.all.peak")),
        non_torch_bytes=outside_torch_bytes,
    )
    return replace(verdict, findings=tuple(_words(verdict, growing=GROWING in configuration)))


def _words(verdict: AllocatorVerdict, *, growing: bool) -> list[str]:
    texts = []
    if verdict.pressure:
        texts.append(
            f"Memory pressure: {verdict.alloc_retries} times the device had no memory left and the cache was flushed "
            "in the timed iterations; the step time is not valid. Lower the micro-batch size or free memory."
        )
    if verdict.fragmented and verdict.idle_share is not None:
        texts.append(
            f"Fragmentation: {verdict.idle_share:.0%} of the reserved memory was idle in split blocks while "
            "requests failed; "
            + ("leave more room: segments grow already." if growing else f"set PYTORCH_CUDA_ALLOC_CONF={GROWING}.")
        )
    if verdict.cache_thrash and not verdict.pressure:
        texts.append(
            f"The allocator still allocated or returned device memory {verdict.device_allocs} times after the warm-up: "
            "warm up longer, or look for shapes that change and calls of empty_cache."
        )
    if verdict.rounding is not None and verdict.rounding > _ROUNDED_SHARE:
        texts.append(f"Rounding: {verdict.rounding - 1:.0%} more was allocated than requested: many small tensors.")
    if verdict.non_torch_bytes is not None and verdict.non_torch_bytes > _NON_TORCH_BYTES:
        texts.append(
            f"{verdict.non_torch_bytes / 2**30:.1f} GiB of the device are used outside torch's allocator: "
            "context, NCCL buffers, libraries, or another process."
        )
    return texts


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


_SIZE = r"(?<![\d.])(\d{1,20}(?:\.\d{1,20})?) ?(bytes|[KMGT]i?B)"
_FACTORS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_FIELDS = {
    "tried": re.compile(r"Tried to allocate " + _SIZE, re.IGNORECASE),
    "total": re.compile(_SIZE + r" total capacity|total capaci?ty of " + _SIZE, re.IGNORECASE),
    "free": re.compile(r"of which " + _SIZE + r" is free|" + _SIZE + r" (?:is )?free", re.IGNORECASE),
    "allocated": re.compile(_SIZE + r" (?:is allocated by PyTorch|already allocated)", re.IGNORECASE),
    "reserved": re.compile(_SIZE + r" reserved in total", re.IGNORECASE),
    "unallocated": re.compile(_SIZE + r" is reserved by PyTorch but unallocated", re.IGNORECASE),
    "process": re.compile(r"this process has " + _SIZE, re.IGNORECASE),
}


def cuda_memory_advice(message: str) -> str | None:
    """What to try, by the message's figures; None if it has none."""
    found = {name: _bytes(match) for name, pattern in _FIELDS.items() if (match := pattern.search(message))}
    if "tried" not in found:
        return None
    facts = f"{_gib(found['tried'])} were requested"
    if "free" in found:
        facts += f", {_gib(found['free'])} were free"
    if "total" in found:
        facts += f" of {_gib(found['total'])}"
    return f"{facts}. {_remedy(found)}"


def _remedy(found: Mapping[str, float]) -> str:
    """``found``: bytes by _FIELDS, as far as the message states them."""
    idle = found.get("unallocated")  # reserved by the allocator and not in use; older messages state both terms of it
    if idle is None and {"reserved", "allocated"} <= found.keys():
        idle = found["reserved"] - found["allocated"]
    if idle is not None and idle >= found["tried"]:
        return (
            f"Fragmentation: {_gib(idle)} are reserved but unused, enough for the request; leave a "
            f"little more room, or set PYTORCH_CUDA_ALLOC_CONF={GROWING} if it is not set yet (the "
            "built-in workload sets it)."
        )
    if {"process", "total", "free"} <= found.keys():
        others = found["total"] - found["free"] - found["process"]
        if others > max(2**30, 0.1 * found["total"]):
            return (
                f"Other processes hold about {_gib(others)} of this GPU: look for stale processes, or ranks that "
                f"share it."
            )
    return "Not fragmentation: lower the micro-batch size, raise tp, pp or the ZeRO stage, or recompute."


def _bytes(match: re.Match[str]) -> float:
    number, unit = (group for group in match.groups() if group is not None)
    return float(number) * _FACTORS[unit[0].lower()]


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"
