"""The values that occur in a column of many candidates, few against their number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def distinct(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Indices]:
    """(each value once, ascending; the place of every row's value among them).

    As ``numpy.unique`` with ``return_inverse``, without its sorting where values are small natural numbers.
    """
    if len(values) and values.dtype.kind == "i" and values.min() >= 0 and values.max() < 4 * len(values):
        occurs = np.zeros(int(values.max()) + 1, dtype=bool)
        occurs[values] = True
        return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[values]
    kinds, places = np.unique(values, return_inverse=True)
    return kinds, places.reshape(values.shape)
