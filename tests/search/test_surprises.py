"""Axis values that a build handles badly: distinguished from disturbed runs, and expected of others that have them."""

import math
from itertools import product

import numpy as np
import pytest

from sweep.physics.hardware import GPUS
from sweep.search.candidates import from_configurations
from sweep.search.step_time_model import SLOWDOWN
from sweep.search.surprises import SLAB, surprises
from tests.support.configurations import run
from tests.support.fitted_times import fitted_to

VALUES = np.array([[a == 0, a == 1, a == 2, b == 0, b == 1] for a, b in product(range(3), range(2))], dtype=float)
"""six runs of two axes, with three and two values"""
COVARIANCE = 0.03 * np.ones((6, 6)) + 0.005 * np.eye(6)
CALM = np.array([0.02, -0.05, 0.03, 0.01, -0.02, 0.04])


def found(slower):
    error = CALM + np.array(slower, dtype=float)
    return [name.tolist() for name in surprises(VALUES, error, COVARIANCE, 0.05, SLOWDOWN)]


def test_a_value_all_of_whose_runs_are_slow_or_fast_has_an_effect_of_its_own():
    assert found([0, 0, 0, 0, 0, 0]) == []
    assert found([0, 0, 0.8, 0.9, 0, 0]) == [[1]]
    assert found([0, 0, -0.8, -0.9, 0, 0]) == [[1]]
    assert found([0, 0.7, 0, 0.7, 0, 0.7]) in ([[3]], [[4]])


def test_one_slow_run_was_disturbed_rather():
    assert found([0, 0, 0, 1.2, 0, 0]) == []


def test_of_a_single_run_nothing_is_learned():
    assert surprises(VALUES[:1], np.array([2.0]), COVARIANCE[:1, :1], 0.05, SLOWDOWN) == []


def evidence(slower, runs, spread):
    """Logarithm of the odds that runs of this ``spread``, all so much ``slower``, have an effect of their own."""
    more = 1 + SLAB**2 * runs / spread**2
    return -0.5 * math.log(more) + 0.5 * (SLAB * runs * slower / spread**2) ** 2 / more


@pytest.mark.parametrize(("odds", "wanted"), [(0.3, True), (-0.3, False)])
def test_a_value_has_an_effect_where_the_evidence_outweighs_half_a_value_in_a_sweep(odds, wanted):
    """Five values: the prior of each is a tenth, however many pairs of them there are."""
    slower = next(e for e in np.arange(0, 1, 1e-4) if math.log(0.5 / 5) + evidence(e, 4, 0.1) >= odds)
    twice = np.concatenate([VALUES, VALUES])
    names = surprises(twice, slower * twice[:, 1], 0.01 * np.eye(12), 0.05, SLOWDOWN)
    assert [name.tolist() for name in names] == ([[1]] if wanted else [])


@pytest.mark.parametrize(("odds", "wanted"), [(0.3, True), (-0.3, False)])
def test_a_pair_of_values_has_one_where_it_outweighs_half_a_pair_in_a_sweep(odds, wanted):
    """Six pairs of three and two values, each of three runs."""
    slower = next(e for e in np.arange(0, 1, 1e-4) if math.log(0.5 / 6) + evidence(e, 3, 0.1) >= odds)
    thrice = np.concatenate([VALUES] * 3)
    error = slower * thrice[:, 1] * thrice[:, 3]
    names = surprises(thrice, error, 0.01 * np.eye(18), 0.05, SLOWDOWN)
    assert [name.tolist() for name in names] == ([[1, 3]] if wanted else [])


def test_what_two_runs_with_a_slow_value_teach_holds_for_the_others_with_it():
    """Seven runs, two of them with selective recomputation and three times as slow as those without."""
    given = [
        run(tp=tp, mbs=mbs, zero=zero, dp=8 // tp, gas=64 // mbs, recompute=recompute)
        for recompute, tp, mbs, zero in product(("none", "selective"), (1, 2), (1, 2, 4), (0, 1))
    ]
    c = from_configurations([f"run-{i:016x}" for i in range(len(given))], given, GPUS["h100"])
    slow = np.array([one["layout"]["recompute"] == "selective" for one in given])
    true = np.log(c.layouts.parts.sum(axis=1)) + np.log(3) * slow
    rows = np.array([0, 3, 5, 7, 10, 13, 20])
    assert slow[rows].sum() == 2
    fit, belief = fitted_to(c, rows, true[rows])
    error = np.abs(belief.mean - true)
    assert error[~slow].max() < 0.15
    assert error[slow].max() < 0.35
    assert fit.disturbed < 0.06


def of_fast_runs_among(disturbed, runs=40):
    """Four runs with a value are half as slow again as others; so many others were disturbed, far more clearly."""
    values = (np.arange(runs) < 4)[:, None].astype(float)
    error = np.where(np.arange(runs) < 4, -0.5, np.where(np.arange(runs) < 4 + disturbed, 3.0, 0.0))
    return [name.tolist() for name in surprises(values, error, 0.01 * np.eye(runs), 0.1, 1.0)]


def test_twice_as_many_disturbed_runs_as_expected_and_eight_values_are_sought():
    """Of forty runs at a tenth: eight disturbed ones, and eight more in place of values."""
    assert of_fast_runs_among(disturbed=15) == [[0]]
    assert of_fast_runs_among(disturbed=16) == []


def test_at_most_eight_values_have_an_effect():
    runs, number = 60, 10
    values = (np.arange(runs)[:, None] // 3 == np.arange(number)).astype(float)
    error = values @ (-0.5 - 0.01 * np.arange(number))
    names = surprises(values, error, 0.01 * np.eye(runs), 0.1, 1.0)
    assert [name.tolist() for name in names] == [[place] for place in range(9, 1, -1)], "the clearest first"


def test_an_effect_is_expected_to_be_of_about_a_factor_of_two():
    assert math.exp(SLAB) == pytest.approx(2, rel=0.02)
