"""How many GPUs for how long: worked examples, Amdahl's law, and a curve through measured points."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.physics.sizing import amdahl_speed_up, fit_scaling, size, total_flops


def test_smollm3_took_379_gpus():
    """3 B parameters, 11 T tokens, 720 TFLOP/s peak at 30 % MFU, four weeks (Smol Training Playbook)."""
    assert total_flops(3e9, 11e12) == pytest.approx(1.98e23)
    found = size(3e9, 11e12, flops_per_s_per_gpu=720e12 * 0.30, days=28)
    assert found.gpus == 379
    assert found.days <= 28
    assert size(3e9, 11e12, flops_per_s_per_gpu=216e12, gpus=384).days == pytest.approx(27.6, abs=0.05)


def test_days_or_gpus_and_not_both():
    for wrong in ({}, {"days": 1, "gpus": 1}):
        with pytest.raises(ValueError, match="days or gpus"):
            size(1e9, 1e9, flops_per_s_per_gpu=1e12, **wrong)


def test_amdahl_with_ten_percent_serial_never_reaches_ten():
    assert amdahl_speed_up(1, 0.1) == 1
    assert amdahl_speed_up(10**9, 0.1) == pytest.approx(10, rel=1e-6)
    assert amdahl_speed_up(10**9, 0.1) < 10


@given(st.floats(1e-9, 1e-3), st.floats(1e-6, 1.0))
def test_a_curve_through_its_own_points_is_found_again(serial, parallel):
    gpus = [8, 16, 64, 512]
    found = fit_scaling(gpus, [1 / (serial + parallel / n) for n in gpus])
    assert found.serial_s + found.parallel_s / 100 == pytest.approx(serial + parallel / 100, rel=1e-3)


def test_where_more_gpus_stop_paying():
    found = fit_scaling([1, 100], [1 / (0.01 + 0.99), 1 / (0.01 + 0.0099)])
    assert found.serial_share == pytest.approx(0.01)
    n = found.most_gpus
    assert found.tokens_per_second(2 * n) / found.tokens_per_second(n) == pytest.approx(1.5)
    assert math.isinf(fit_scaling([1, 10], [1.0, 10.0]).most_gpus)


def test_better_than_linear_points_have_no_serial_part():
    assert fit_scaling([8, 16], [8.0, 17.0]).serial_share == 0


def test_one_point_is_no_curve():
    with pytest.raises(ValueError, match="two numbers of GPUs"):
        fit_scaling([8, 8], [1.0, 2.0])
