"""The order in which runs are measured, and how predictions are rounded: against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.planning.predict import costs, order, rounded

RUNS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"]), st.integers(1, 4), st.integers(0, 1), st.booleans()),
    max_size=12,
)


@settings(max_examples=60)
@given(RUNS)
def test_the_best_of_every_cell_comes_before_any_second_then_repeats_and_impossible_runs_after_all_others(runs):
    """By feasibility, then repeat, then place in the own cell (cost, the run_id's digest), then nodes and model."""
    ids = [f"run-{(7919 * number) % 2**16:016x}" for number in range(len(runs))]
    nodes, models, costs, repeats, impossible = zip(*runs, strict=True) if runs else ((),) * 5
    cells = list(zip(nodes, models, strict=True))
    found = order(cells, costs, repeats, ids, np.array(impossible, dtype=bool))

    def place(number):
        """How many of the own cell come before."""
        key = lambda i: (impossible[i], repeats[i], costs[i], ids[i])  # noqa: E731
        return sum(key(other) < key(number) for other in range(len(runs)) if cells[other] == cells[number])

    wanted = sorted(range(len(runs)), key=lambda i: (impossible[i], repeats[i], place(i), cells[i], ids[i]))
    assert found.tolist() == wanted


def test_a_run_that_may_not_fit_counts_as_a_hundred_times_as_slow():
    assert costs(np.array([2.0, 2.0, 3.0]), np.array([4.0, 4.0, 1.0]), np.array([False, True, False])).tolist() == [
        0.5, 50.0, 3.0,
    ]  # fmt: skip


@pytest.mark.parametrize(("value", "shown"), [
    (123.456, 123.0), (123.6, 124.0), (0.0123456, 0.0123), (9.999, 10.0), (98765.0, 98800.0), (1.0, 1.0),
    (100.0, 100.0), (0.0, 0.0), (-5.0, 0.0), (float("nan"), 0.0), (float("inf"), 0.0),
    (0.00001234, 0.000012), (0.000001, 0.000001), (999.6, 1000.0), (0.5, 0.5),
])  # fmt: skip
def test_sizes_in_reasons_have_three_digits(value, shown):
    with np.errstate(all="raise"):
        assert rounded(np.array([value]))[0] == pytest.approx(shown)
