"""Verdict on the timed iterations from the CUDA caching allocator's counters. Pure.

Keys: ``torch.cuda.memory_stats`` (c10/cuda/CUDACachingAllocator.h). Counters are compared before and after the timed
iterations, peaks are those of the timed iterations (reset after the warm-up). Missing keys (cudaMallocAsync leaves
some at zero, older releases lack some) make a verdict unknown, never false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
    """segments were allocated from or returned to the device after the warm-up"""
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
    before: Mapping[str, float],
    after: Mapping[str, float],
    *,
    device_free_bytes: int | None = None,
    device_total_bytes: int | None = None,
) -> AllocatorVerdict:
    """The verdict from ``memory_stats`` before and after the timed iterations.

    ``device_free_bytes`` and ``device_total_bytes`` are ``torch.cuda.mem_get_info`` at the end.
    """
    retries = _delta(before, after, "num_alloc_retries")
    ooms = _delta(before, after, "num_ooms")
    allocs = _total((_delta(before, after, "num_device_alloc"), _delta(before, after, "num_device_free")))
    idle, reserved = after.get("inactive_split_bytes.all.peak"), after.get("reserved_bytes.all.peak")
    share = idle / reserved if idle is not None and reserved else None
    verdict = AllocatorVerdict(
        pressure=None if retries is None else retries > 0 or bool(ooms),
        fragmented=None
        if share is None or retries is None
        else share > _FRAGMENTED_SHARE and (retries > 0 or bool(ooms)),
        cache_thrash=None if allocs is None else allocs > 0,
        alloc_retries=retries,
        ooms=ooms,
        device_allocs=allocs,
        idle_share=share,
        rounding=_ratio(after.get("allocated_bytes.all.peak"), after.get("requested_bytes.all.peak")),
        non_torch_bytes=_non_torch(after, device_free_bytes, device_total_bytes),
    )
    return AllocatorVerdict(**{**vars(verdict), "findings": tuple(_words(verdict))})


def _words(verdict: AllocatorVerdict) -> list[str]:
    texts = []
    if verdict.pressure:
        texts.append(
            f"Memory pressure: {verdict.alloc_retries} times the device had no memory left and the cache was flushed "
            "in the timed iterations; the step time is not valid. Lower the micro-batch size or free memory."
        )
    if verdict.fragmented and verdict.idle_share is not None:
        texts.append(
            f"Fragmentation: {verdict.idle_share:.0%} of the reserved memory was idle in split blocks while "
            "requests failed; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
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


def _delta(before: Mapping[str, float], after: Mapping[str, float], key: str) -> int | None:
    if key not in before or key not in after:
        return None
    return int(after[key] - before[key])


def _total(parts: tuple[int | None, ...]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _non_torch(after: Mapping[str, float], free: int | None, total: int | None) -> int | None:
    reserved = after.get("reserved_bytes.all.current")
    if free is None or total is None or reserved is None:
        return None
    return max(0, total - free - int(reserved))
