"""The front of memory against throughput."""

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from analysis.derive.best import completed, measured
from analysis.derive.scaling import front, memory_against
from analysis.metrics import METRICS
from tests.support.made_records import made_grid


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=20), st.booleans())
def test_the_front_is_what_a_plain_loop_finds(points, higher):
    peak, value = (pd.Series([float(p[i]) for p in points]) for i in (0, 1))
    found = {(peak[i], value[i]) for i in front(peak, value, higher=higher)}

    def heartbeats(a, b):
        gain = a[1] >= b[1] if higher else a[1] <= b[1]
        return a != b and a[0] <= b[0] and gain

    assert found == {p for p in points if not any(heartbeats(q, p) for q in points)}


def test_of_measured_configurations_those_with_a_known_peak_are_drawn_and_each_cell_has_its_front():
    made = made_grid(1, 2, failing=False)
    made["peak_memory_bytes"] = [1.0, 20.0, None, 0.0, 10.0, float("inf"), 40.0, 30.0]
    made["tokens_per_second_per_gpu"] = [5.0, 6.0, 9.0, 9.0, 5.0, 9.0, 4.0, 7.0]
    table = memory_against(completed(made))
    assert table["peak"].tolist() == [1.0, 20.0, 10.0, 40.0, 30.0]
    assert table["front"].tolist() == [True, True, True, False, True]
    slow = memory_against(
        completed(made.assign(step_time_median_s=made["tokens_per_second_per_gpu"])), METRICS["step_time_median_s"]
    )
    assert slow["front"].tolist() == [True, False, True, True, False]


def test_the_table_has_the_columns_of_what_was_measured_and_two_more():
    made = completed(made_grid(1, 2, failing=False))
    table = memory_against(made)
    assert set(table) == set(measured(made, METRICS["tokens_per_second_per_gpu"])) | {"peak", "front"}
