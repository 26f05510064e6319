"""Peak memory of a rank: on a GPU by the allocator's statistics, on CPU by one more iteration under the profiler."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from bench_workloads import hardware

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

    def peaks(self, iteration: Callable[[], object], watch_cpu: bool) -> tuple[int | None, int | None, str]:
        """Peak bytes allocated and reserved, None where unknown; what was counted. On CPU: of one more iteration."""
        if self._device.type == "cuda":
            allocated, reserved = (self._end[f"{name}_bytes.all.peak"] for name in ("allocated", "reserved"))
            return allocated, reserved, "the allocator's peak over the timed iterations"
        peak = _peak_tensor_bytes(iteration) if watch_cpu else None
        return peak, None, "tensors alive at once in one further iteration"

    def further(self) -> dict[str, Any]:
        """The process' resident set, and on a GPU the allocator's counters and the memory outside torch."""
        found: dict[str, Any] = {"peak_resident_set_bytes": hardware.peak_resident_set_bytes()}
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            found["allocator"] = {name: self._end.get(name) for name in _PEAKS}
            found["allocator_new"] = {n: self._end.get(n, 0) - self._start.get(n, 0) for n in _COUNTERS}
            found["device_memory_bytes"] = total
            found["device_memory_not_torch_bytes"] = total - free - torch.cuda.memory_reserved(self._device)
        return found


def _peak_tensor_bytes(iteration: Callable[[], object]) -> int:
    """Peak bytes of tensors on CPU while ``iteration`` runs: those allocated before it, and what it adds.

    The profiler records every allocation and release of the CPU allocator, which has no statistics.
    """
    # Plain tensors only: a distributed one has a local one that holds the bytes.
    storages = (
        thing.untyped_storage()
        for thing in gc.get_objects()
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu"
    )
    before = {storage.data_ptr(): storage.nbytes() for storage in storages}
    watched = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with muted_stderr():
        watched.start()
    iteration()
    with muted_stderr():
        watched.stop()
    found, waiting = [], watched.profiler.kineto_results.experimental_event_tree()[::-1]
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children[::-1])
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    return highest(before, [(address, size) for _, address, size in sorted(found, key=lambda change: change[0])])


def highest(held: Mapping[int, int], changes: Iterable[tuple[int, int]]) -> int:
    """Peak bytes, of blocks held from the start (address -> bytes) and changes: (address, bytes), < 0 released.

    Releases by gloo's threads are not recorded: such a block counts until its address is reused. So buffers of
    collectives may count for longer than they lived, and no block counts twice.

    >>> highest({1: 4}, [(2, 8), (2, -8), (3, 2), (3, 5), (9, -100)])
    12
    """
    held = dict(held)
    now = most = sum(held.values())
    for address, size in changes:
        now -= held.pop(address, 0)
        if size > 0:
            held[address] = size
            now += size
            most = max(most, now)
    return most


@contextmanager
def muted_stderr() -> Iterator[None]:
    """Suppress what torch 2.13's profiler logs whenever it starts and stops."""
    saved = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
