"""How many GPUs for how long: worked examples, Amdahl's law, and a curve through measured points."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.physics.sizing import fit_scaling, size


def test_days_or_gpus_and_not_both():
    for wrong in ({}, {"days": 1, "gpus": 1}):
        with pytest.raises(ValueError, match="days or gpus"):
            size(1e9, 1e9, flops_per_s_per_gpu=1e12, **wrong)


@given(st.floats(1e-9, 1e-3), st.floats(1e-6, 1.0))
def test_a_curve_through_its_own_points_is_found_again(serial, parallel):
    gpus = [8, 16, 64, 512]
    found = fit_scaling(gpus, [1 / (serial + parallel / n) for n in gpus])
    assert found.serial_s + found.parallel_s / 100 == pytest.approx(serial + parallel / 100, rel=1e-3)


def test_where_more_gpus_stop_paying():
    found = fit_scaling([1, 100], [1 / (0.02 + 1.98), 1 / (0.02 + 0.0198)])
    assert found.serial_share == pytest.approx(0.01)
    n = found.most_gpus
    assert found.tokens_per_second(2 * n) / found.tokens_per_second(n) == pytest.approx(1.5)
    assert math.isinf(fit_scaling([1, 10], [1.0, 10.0]).most_gpus)


def test_one_point_is_no_curve():
    with pytest.raises(ValueError, match="two numbers of GPUs"):
        fit_scaling([8, 8], [1.0, 2.0])


def test_throughputs_beyond_what_numbers_hold_are_no_curve():
    for least, most in ((5e-324, 5e-324), (1.0, 1e308)):
        with pytest.raises(ValueError, match="no scaling curve"):
            fit_scaling([8, 16], [least, most])


def test_a_size_states_the_compute_the_time_and_the_speed_of_each_gpu():
    """6 * 1e9 * 1e12 FLOP on 100 GPUs of 1e14 FLOP/s: 6e5 s."""
    found = size(1e9, 1e12, flops_per_s_per_gpu=1e14, gpus=100)
    assert found.total_flops == 6e21
    assert found.days == pytest.approx(6e5 / 86400)
    assert found.gpu_hours == pytest.approx(100 * 6e5 / 3600)
    assert found.tokens_per_second_per_gpu == pytest.approx(1e12 / 6e5 / 100)
    assert (found.gpus, found.flops_per_s_per_gpu) == (100, 1e14)


@pytest.mark.parametrize(("days", "gpus"), [(1.0, 10), (0.999, 11), (1.001, 10), (20.0, 1)])
def test_gpus_are_rounded_up_but_for_the_error_of_arithmetic(days, gpus):
    """Work of ten GPU days."""
    found = size(86400e14 / 6e9, 1e9 * 10, flops_per_s_per_gpu=1e14, days=days)
    assert found.gpus == gpus


def test_a_curve_through_noisy_points_has_the_least_relative_errors():
    """Against a search around it: no other curve nearby is closer to the three points, relative to each."""
    gpus, measured = (8, 16, 64), (100.0, 170.0, 400.0)
    found = fit_scaling(gpus, measured)

    def error(serial, parallel):
        return sum((t * (serial + parallel / n) - 1) ** 2 for n, t in zip(gpus, measured, strict=True))

    best = error(found.serial_s, found.parallel_s)
    for ds, dp in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)):
        assert error(found.serial_s * (1 + 1e-4 * ds), found.parallel_s * (1 + 1e-4 * dp)) > best


def test_points_that_more_gpus_make_slower_have_no_parallel_part():
    """The serial time per token is the least relative error to both: sum of t over sum of t squared."""
    found = fit_scaling([8, 16], [100.0, 90.0])
    assert found.parallel_s == 0
    assert found.serial_s == pytest.approx((100 + 90) / (100**2 + 90**2))
    assert found.most_gpus == 0
    faster = fit_scaling([8, 16], [8.0, 17.0])
    x = [(8.0 / 8), (17.0 / 16)]
    assert faster.parallel_s == pytest.approx(sum(x) / sum(one**2 for one in x))
