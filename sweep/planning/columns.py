"""The candidates of one (model, nodes) cell as columns: made when read, and it is known which were read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
FROM_DP = frozenset({"dp", "dp tokens", "grad_accum", "global_batch_tokens", "nearest tokens", "batch is near"})
"""columns that mean nothing where the GPU equation has no whole dp"""
FROM_BATCH = frozenset({"grad_accum", "global_batch_tokens", "over memory"})
"""columns that mean nothing where no batch is near enough"""


class Columns(Mapping[str, Any]):
    """Column name -> array over the candidates, or a scalar where all of them agree.

    Columns of our own, which no rule of others reads, have a blank in their names, so that no parameter is named so.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        axes: Mapping[str, tuple[Any, ...]],
        codes: Mapping[str, Indices],
        size: int,
        named: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._facts = facts
        self._axes = axes
        self.size = size
        """how many candidates there are"""
        self.named = named
        """the names of the parameters ("params") and of the variables ("env")"""
        self.codes = codes
        """axis -> which of its values each candidate has; an axis of one value has no entry"""
        self._made: dict[str, Any] = {}
        self._derived: dict[str, Callable[[], Any]] = {}
        self.read: set[str] = set()
        """names read since it was last cleared"""

    def derive(self, name: str, make: Callable[[], Any]) -> None:
        """Add a column, or replace one, that is computed when it is first read."""
        self._made.pop(name, None)
        self._derived[name] = make

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        if name in self._made:
            return self._made[name]
        if name in self._derived:
            self._made[name] = self._derived[name]()
        elif name in self.codes:
            self._made[name] = _array(self._axes[name])[self.codes[name]]
        elif name in self._axes:
            self._made[name] = self._axes[name][0]
        else:
            self._made[name] = self._facts[name]
        return self._made[name]

    def values_of(self, axis: str) -> tuple[Any, ...]:
        """The values of an axis, parameter or variable."""
        return self._axes[axis]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._facts, **self._axes, **dict.fromkeys(self._derived)})

    def __len__(self) -> int:
        return len(list(iter(self)))


def _array(values: tuple[Any, ...]) -> npt.NDArray[Any]:
    """The values as an array of one kind: mixed ones stay Python objects, so that 1 and "1" stay apart."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {int, float, bool, str}:
        return np.asarray(values, dtype=np.int64 if kinds == {int} else None)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
