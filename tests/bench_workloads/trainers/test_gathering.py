"""From parsed lines to iterations: their times, and lines that cover several."""

import pytest

from bench_workloads.trainers.adapter import ParsedLine
from bench_workloads.trainers.driver.gathering import Gathered


def gathered_from(*entries, warmup=2, iterations=3):
    gathered = Gathered(warmup, iterations)
    for iteration, at_s, values in entries:
        gathered.add(ParsedLine(iteration=iteration, values=values), at_s)
    return gathered


def test_times_by_the_clock_where_the_trainer_reports_none():
    gathered = gathered_from(*((i, 10.0 + i * 0.5, {}) for i in range(1, 6)))
    assert gathered.done
    assert gathered.timed_s() == pytest.approx([0.5] * 3)
    assert gathered.warmup_s() == pytest.approx([0.5])


def test_the_trainers_own_times_come_first():
    gathered = gathered_from(*((i, float(i), {"step_time_s": i / 10}) for i in range(1, 6)))
    assert gathered.timed_s() == pytest.approx([0.3, 0.4, 0.5])
    assert gathered.wall_s() == pytest.approx(1.0)


def test_a_line_every_ten_iterations_covers_ten():
    gathered = gathered_from(*((i, i * 0.1, {}) for i in (10, 20, 30)), warmup=2, iterations=15)
    assert gathered.printed_every == 10
    assert gathered.timed_s() == pytest.approx([0.1] * 15)
    assert gathered.count() == 30


def test_without_warm_up_the_first_unknown_one_is_not_timed():
    gathered = gathered_from(*((i, i * 0.5, {}) for i in range(1, 4)), warmup=0, iterations=2)
    assert gathered.timed_s() == pytest.approx([0.5, 0.5])


def test_lines_that_come_at_once_share_their_time():
    gathered = gathered_from((1, 1.0, {}), (2, 2.0, {}), (3, 4.0, {}), (4, 4.0, {}), (5, 5.0, {}), warmup=2)
    assert gathered.timed_s() == pytest.approx([1.0, 1.0, 1.0])


def test_counts_from_zero_and_repeats_of_other_ranks():
    gathered = gathered_from(
        (0, 0.0, {"loss": 3.0}),
        (0, 0.1, {"loss": 9.0, "allocated_bytes": 7}),
        (1, 1.0, {"loss": 2.0}),
        warmup=1,
        iterations=1,
    )
    assert gathered.timed_s() == [1.0]
    assert gathered.series("loss") == [3.0, 2.0]
    assert gathered.greatest("allocated_bytes") == 7


def test_values_on_a_line_of_their_own_belong_to_the_iteration_before():
    gathered = gathered_from((1, 0.0, {}), (2, 1.0, {}), warmup=1, iterations=1)
    gathered.add(ParsedLine(values={"loss": 4.0}), 1.1)
    assert gathered.entries[-1].values == {"loss": 4.0}
