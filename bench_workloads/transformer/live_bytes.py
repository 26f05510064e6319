"""Bytes of live tensors, counted operator by operator: how much memory, when, and of which kind.

Works on fake tensors (``torch._subclasses.FakeTensorMode``), whose storages have a size and no memory. A storage counts
from the operator that made it until nothing refers to it; what FSDP frees by resizing is followed.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KINDS = ("weights", "gathered_weights", "gradients", "optimizer_states", "activations", "other")
"""``other``: temporaries of backward and optimizer, recomputed activations among it"""


class LiveBytes(TorchDispatchMode):
    """Counts inside its ``with`` block. Enter it inside the fake mode whose tensors are to be counted."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()
        self._fake = fake
        self._numbers: dict[int, int] = {}
        """of the live storages, by address of the storage's object"""
        self._bytes = array("q")
        """current bytes of each storage ever seen"""
        self._kinds: list[str] = []
        self._log = array("q")
        """number of the storage and change of its bytes, alternating"""
        self._live = 0
        self._peak = -1
        self._peak_at = 0
        self._watching = False
        self._task = -1
        self._of_task: list[int] = []
        """storages made by the current backward pass"""
        self._resize: Any = None
        self.optimizing = False
        """set while the optimizer runs"""

    def __enter__(self) -> LiveBytes:
        """Count from here on. FSDP resizes storages past any dispatch, so the method itself is watched."""
        resize = self._resize = torch.UntypedStorage.resize_

        def watched(storage: torch.UntypedStorage, size: int) -> Any:
            out = resize(storage, size)
            if storage._cdata in self._numbers:
                self._set(self._numbers[storage._cdata], size)
            return out

        torch.UntypedStorage.resize_ = watched
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *raised: Any) -> None:
        """Stop counting."""
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*raised)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and count what it made. Distributed tensors are counted where their local ones are made."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        self._follow_backward()
        out = func(*args, **(kwargs or {}))
        for leaf in (out,) if isinstance(out, Tensor) else tree_leaves(out):
            if isinstance(leaf, FakeTensor) and leaf.fake_mode is self._fake:
                self._see(leaf.untyped_storage())
        return out

    def watch(self) -> None:
        """Track the peak from here on."""
        self._watching, self._peak, self._peak_at = True, self._live, len(self._log)

    def name(self, kind: str, tensors: Iterable[Tensor]) -> None:
        """Set the kind of these tensors' storages."""
        for tensor in tensors:
            number = self._numbers.get(tensor.untyped_storage()._cdata)
            if number is not None:
                self._kinds[number] = kind

    def peak(self) -> dict[str, int]:
        """Bytes by kind at the moment of the peak. Their sum is the peak."""
        held: dict[int, int] = {}
        for i in range(0, self._peak_at, 2):
            held[self._log[i]] = held.get(self._log[i], 0) + self._log[i + 1]
        found = dict.fromkeys(KINDS, 0)
        for number, size in held.items():
            found[self._kinds[number]] += size
        return found

    def _see(self, storage: torch.UntypedStorage) -> None:
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = len(self._bytes)
            self._numbers[storage._cdata] = number
            self._bytes.append(0)
            self._kinds.append(self._kind())
            if self._task >= 0:
                self._of_task.append(number)
            weakref.finalize(storage, self._gone, storage._cdata, number).atexit = False
        self._set(number, storage.nbytes())

    def _kind(self) -> str:
        """The kind of a storage made now, unless set or inferred otherwise later."""
        return "other" if self._task >= 0 or self.optimizing else "activations"

    def _gone(self, address: int, number: int) -> None:
        if self._numbers.get(address) == number:
            del self._numbers[address]
        self._set(number, 0)

    def _set(self, number: int, size: int) -> None:
        change = size - self._bytes[number]
        if not change:
            return
        self._bytes[number] = size
        self._live += change
        self._log.extend((number, change))
        if self._watching and self._live > self._peak:
            self._peak, self._peak_at = self._live, len(self._log)

    def _follow_backward(self) -> None:
        """Storages that outlive a backward pass are gradients."""
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return
        for number in self._of_task:
            if self._bytes[number]:
                self._kinds[number] = "gradients"
        self._task, self._of_task = task, []
