"""Peak bytes of tensors on CPU, where torch's allocator keeps no count: one more iteration, watched by the profiler.

The profiler tells of every allocation and release of the CPU allocator; what already lives is counted by looking.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate

import torch


def peak_tensor_bytes(iteration: Callable[[], object]) -> int:
    """Most bytes of tensors at once while ``iteration`` runs: those that live before it, and what it adds."""
    before = live_tensor_bytes()
    watched = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with silent_stderr():
        watched.start()
    iteration()
    with silent_stderr():
        watched.stop()
    events = [e for e in watched.profiler.kineto_results.events() if e.name() == "[memory]"]
    changes = [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]
    return before + int(max(accumulate(changes, initial=0)))


def live_tensor_bytes() -> int:
    """Bytes of all storages that tensors of this process hold, each once.

    Plain tensors only: a distributed one has a local one that holds the bytes.
    """
    sizes: dict[int, int] = {}
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu":
            storage = thing.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Keep from the log what torch 2.13's profiler prints there whenever it starts and stops."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
