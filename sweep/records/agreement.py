"""Whether the layouts of one model train the same model: with one seed and one global batch, their losses agree.

A silently wrong combination of parallelisms, or a node that corrupts numbers, shows only here. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

NOTE = "losses differ"
"""How every note of this module begins"""

COMPARED = 5
"""Iterations compared: rounding grows with the steps, a wrong gradient shows in the second"""

TOLERANCE: Mapping[str, float] = {"fp32": 1e-4}
"""dtype -> relative difference that rounding may cause"""
DEFAULT_TOLERANCE = 1e-2
OTHER_START = 5e-2
"""the same for trainers that give each layout its own weights: only gross errors show"""


def tolerance_of(dtype: str, *, same_start: bool = True) -> float:
    """Relative tolerance between losses of a model. ``same_start``: see ``sweep.contract.Workload``."""
    return TOLERANCE.get(dtype, DEFAULT_TOLERANCE) if same_start else OTHER_START


def disagreements(
    groups: Sequence[Hashable], losses: Sequence[Sequence[float] | None], tolerances: Sequence[float]
) -> dict[int, str]:
    """Index of a record -> what is odd about its losses.

    ``groups``: what makes two records measurements of the same training (model, batch, dtype, parameters).
    ``losses``: per record, the loss of each iteration; None where it has none. ``tolerances``: per record.
    Of three or more, those off the median are reported; of two that differ, both are.
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, (group, values) in enumerate(zip(groups, losses, strict=True)):
        if values is not None and len(values):
            members[group].append(index)
    found: dict[int, str] = {}
    for indices in members.values():
        if len(indices) > 1:
            found |= _of_group({index: losses[index] or () for index in indices}, tolerances[indices[0]])
    return found


def _of_group(losses: Mapping[int, Sequence[float]], tolerance: float) -> dict[int, str]:
    length = min(COMPARED, *(len(values) for values in losses.values()))
    table = np.array([list(values)[:length] for values in losses.values()], dtype=float)
    usual = np.nanmedian(table, axis=0)
    # NaN agrees with nothing.
    distance = np.nan_to_num(np.abs(table - usual) / np.maximum(np.abs(usual), 1e-12), nan=np.inf).max(axis=1)
    if len(losses) == 2:
        distance = distance * 2  # each is half of their difference away from the median of both
    return {
        index: f"{NOTE} from those of the other {len(losses) - 1} layouts of this model by up to {far:.1e} (relative)"
        for index, far in zip(losses, distance, strict=True)
        if far > tolerance
    }
