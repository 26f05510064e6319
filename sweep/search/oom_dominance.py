"""Which runs an observed out-of-memory rules out: those with at least the same needs in every respect.

A run is described by a class, within which memory needs can be compared without a model, and by a vector of needs.
A run dominates another of its class whose vector is no larger in any component; a run that runs out of memory rules
out all that dominate it. Failures of any other or unstated cause rule out nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.contract import FURTHER
from sweep.physics.columns import equals, read

_SAME = (
    *("sequence_length", "pp", "cp", "ep", "gpus_per_node", "recompute", "pp_schedule", "dtype", "compile"),
    *FURTHER,
)
"""equal within a class, in addition to the model's shape and the workload's parameters"""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Needs:
    """The memory needs of candidates, comparable within a class."""

    classes: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float64]
    """(candidates, needs); a larger number is a greater need"""

    def dominating(self, index: int) -> Bools:
        """The candidates with at least the needs of this one in every component, itself included."""
        mine = self._members[self.classes[index]]
        mask: Bools = np.zeros(len(self.classes), dtype=bool)
        mask[mine[(self.vectors[mine] >= self.vectors[index]).all(axis=1)]] = True
        return mask

    @cached_property
    def _members(self) -> list[npt.NDArray[np.int64]]:
        """The candidates of each class, by its number."""
        order = np.argsort(self.classes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.classes))[:-1])


def needs(columns: Mapping[str, Any], kinds: list[Hashable], bounded: Bools) -> Needs:
    """The needs of candidates. ``kinds``: per candidate what else must be equal (shape, parameters, environment).
    ``bounded``: known not to be built on FSDP and torch's pipelines, so that 1F1B allocates only the
    micro-batches in flight, and a step of one micro-batch never needs more than one of several.

    In the vector, each larger where more memory is needed with all else equal: the micro-batch; fewer tensor ranks;
    micro-batches in flight (1F1B holds at most pp of them, and gradients persist from the second); the samples of a
    whole step on a rank, of which other schedules hold more, or all; a lower ZeRO stage; fewer ranks to shard over,
    where anything is sharded.
    """
    size = len(kinds)
    same = [np.broadcast_to(np.asarray(columns.get(name, 0)), size).tolist() for name in _SAME]
    numbers: dict[Hashable, int] = {}
    # A run of one replica has no buckets to reduce gradients in: it may need less than one of two.
    alone = np.broadcast_to(read(columns, "dp") * read(columns, "cp") == 1, size).tolist()
    # FSDP reduces at once in a step of one micro-batch: it may need more than one of two.
    at_once = (read(columns, "zero") > 0) & (read(columns, "grad_accum") == 1) & ~bounded
    # One tensor rank may compute the loss in chunks, of fewer bytes than the half of the logits that one of two has.
    whole_loss = (read(columns, "tp") == 1) & ~bounded
    either = [np.broadcast_to(flag, size).tolist() for flag in (at_once, whole_loss)]
    keys = zip(kinds, alone, *either, *same, strict=True)
    classes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    zero, pp = read(columns, "zero"), read(columns, "pp")
    shards = np.where(zero > 0, read(columns, "dp"), 1.0)  # cp is equal within a class
    flight = np.minimum(read(columns, "grad_accum"), np.maximum(pp, 2))
    plain = (pp == 1) | (equals(columns, "pp_schedule", "1f1b") & bounded)
    samples = np.where(plain, 0.0, read(columns, "micro_batch_size") * read(columns, "grad_accum"))
    vector = [read(columns, "micro_batch_size"), -read(columns, "tp"), flight, samples, -zero, -shards]
    stacked = [np.broadcast_to(np.asarray(part, dtype=np.float64), size) for part in vector]
    return Needs(classes, np.stack(stacked, axis=1))
