"""Values that occur, against ``numpy.unique``."""

import numpy as np
import pytest

from sweep.planning.reasons import distinct


@pytest.mark.parametrize("values", [
    [], [3], [0, 0, 0], [5, 1, 5, 0, 2], [2**40, 7, 2**40], [-1, 4, -1], [0.5, 0.25, 0.5], [True, False, True],
    list(range(100)) * 3,
])  # fmt: skip
def test_each_value_once_ascending_and_each_rows_place(values):
    column = np.array(values) if values else np.array([], dtype=np.int64)
    kinds, places = distinct(column)
    wanted, inverse = np.unique(column, return_inverse=True)
    assert kinds.tolist() == wanted.tolist()
    assert places.tolist() == inverse.tolist()
