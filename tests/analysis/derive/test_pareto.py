"""The front of memory against throughput."""

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analysis.derive.pareto import front


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=20), st.booleans())
def test_the_front_is_what_a_plain_loop_finds(points, higher):
    peak, value = (pd.Series([float(p[i]) for p in points]) for i in (0, 1))
    found = {(peak[i], value[i]) for i in front(peak, value, higher=higher)}

    def heartbeats(a, b):
        gain = a[1] >= b[1] if higher else a[1] <= b[1]
        return a != b and a[0] <= b[0] and gain

    assert found == {p for p in points if not any(heartbeats(q, p) for q in points)}
