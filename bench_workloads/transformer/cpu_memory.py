"""Peak bytes of tensors on CPU, where torch's allocator has no statistics: one more iteration, under the profiler.

The profiler records every allocation and release of the CPU allocator; what is already allocated is counted first.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch


def peak_tensor_bytes(iteration: Callable[[], object]) -> int:
    """Peak bytes of tensors while ``iteration`` runs: those allocated before it, and what it adds."""
    before = live_tensors()
    watched = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with muted_stderr():
        watched.start()
    iteration()
    with muted_stderr():
        watched.stop()
    return highest(before, _changes(watched.profiler.kineto_results.experimental_event_tree()))


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


def live_tensors() -> dict[int, int]:
    """The storages that tensors of this process hold: address -> bytes.

    Plain tensors only: a distributed one has a local one that holds the bytes.
    """
    storages = (
        thing.untyped_storage()
        for thing in gc.get_objects()
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu"
    )
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _changes(tree: list[Any]) -> list[tuple[int, int]]:
    """(address, bytes) of each allocation and release among the profiler's events, in order of time."""
    found, waiting = [], tree[::-1]
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children[::-1])
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    return [(address, size) for _, address, size in sorted(found, key=lambda change: change[0])]


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
