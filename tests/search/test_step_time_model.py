"""What measured step times teach, against textbook formulas that are computed one run at a time."""

import math
from dataclasses import replace
from itertools import product
from statistics import NormalDist

import numpy as np
import pytest

from sweep.physics import constants
from sweep.search.scales import LEAST_NOISE, PRIOR_OF_SCALES, PRIOR_OF_SIZES, STEP, Scales
from sweep.search.step_time_model import (
    DISTURBED,
    FREEDOM,
    SLOWDOWN,
    Fit,
    MeasuredTimes,
    disturbance_variance,
    linearised,
    trust,
)
from tests.support.configurations import made_candidates, run


@pytest.fixture(scope="module")
def candidates():
    given = [
        {**run(tp=tp, mbs=mbs, zero=zero, dp=8 // tp, gas=16 // mbs), "nodes": nodes}
        for nodes, tp, mbs, zero in product((1, 2), (1, 4), (1, 4), (0, 1))
    ]
    return made_candidates(given)


def fit_of(candidates, **scales):
    sizes = (1.0, 2.0)
    return Fit.prior(candidates.layouts, Scales(**scales, by_size=sizes))


def measured(candidates, error):
    indices = np.arange(len(candidates))
    mean, _ = linearised(candidates.layouts, fit_of(candidates))
    within = candidates.kernel.columns(indices, indices)
    return MeasuredTimes(candidates.layouts, candidates.sizes, mean + error, within)


ERROR = 0.1 * np.sin(1.7 * np.arange(16))


def test_the_covariance_of_residuals_sums_each_order_by_its_scale_and_a_layouts_own_by_the_two_sizes():
    orders = np.array([[[3.0, 1.0], [1.0, 3.0]], [[3.0, 0.5], [0.5, 3.0]], [[1.0, 0.25], [0.25, 1.0]]])
    scales = Scales(single=0.2, paired=0.3, joint=0.5, by_size=(1.0, 4.0))
    found = scales.residual(orders, np.array([[0], [1]]), np.array([0, 1]))
    for a, b in product((0, 1), (0, 1)):
        own = 0.25 * (1, 4)[a] * (1, 4)[b]
        wanted = 0.04 * orders[0, a, b] + 0.09 * orders[1, a, b] + own * orders[2, a, b]
        assert found[a, b] == pytest.approx(wanted)


def students_density(x, variance):
    """Of 3 degrees of freedom."""
    return 2 / (math.pi * math.sqrt(3 * variance)) * (1 + x**2 / variance / 3) ** -2


@pytest.mark.parametrize("slower", [-1.0, -0.1, 0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize(("variance", "disturbed"), [(0.01, 0.05), (0.09, 0.3)])
@pytest.mark.parametrize("freedom", [math.inf, 3.0])
def test_a_run_is_trusted_by_bayes_rule_and_moves_expectations_by_its_trust(slower, variance, disturbed, freedom):
    """Disturbed runs are slower by half a normal distribution that is SLOWDOWN wide, and vary as the others too."""
    density = students_density(slower, variance) if freedom == 3 else NormalDist(0, math.sqrt(variance)).pdf(slower)
    usual = density * (1 - disturbed)
    slow = 2 * NormalDist(0, math.sqrt(variance + SLOWDOWN**2)).pdf(slower) * disturbed if slower > 0 else 0.0
    (found,) = trust(np.array([slower]), np.array([variance]), disturbed, freedom)
    assert found == pytest.approx(usual / (usual + slow))
    (further,) = disturbance_variance(np.array([slower]), np.array([variance]), disturbed, freedom)
    assert variance / (variance + further) == pytest.approx(found)


def test_the_slopes_are_the_derivatives_of_the_log_time_by_each_uncertain_factor(candidates):
    """In units of a factor's spread; the mean is where the tangent meets the factors of 1."""
    layouts, fit = candidates.layouts, fit_of(candidates)
    layouts = replace(layouts, causes=np.linspace(0.2, 1.5, layouts.causes.size).reshape(layouts.causes.shape))
    at = replace(fit, factors=0.3 * np.cos(np.arange(len(fit.factors))))
    mean, slopes = linearised(layouts, at)
    number = layouts.parts.shape[1]

    def log_time(factors):
        shared = (layouts.causes * factors[number:]) @ layouts.loadings.T
        return np.log((layouts.parts * np.exp(layouts.spreads * factors[:number] + shared)).sum(axis=1))

    tangent = log_time(at.factors)
    for part in range(len(at.factors)):
        step = 1e-5 * (np.arange(len(at.factors)) == part)
        slope = (log_time(at.factors + step) - log_time(at.factors - step)) / 2e-5
        assert slopes[:, part] == pytest.approx(slope, abs=1e-8)
        tangent = tangent - slope * at.factors[part]
    assert mean == pytest.approx(tangent)
    wide = linearised(layouts, replace(at, scales=replace(at.scales, physics=2.5)))
    assert wide[0] == pytest.approx(mean)
    assert wide[1] == pytest.approx(2.5 * slopes)


def covariance_of(data, fit, extra=0.0):
    _, linear = linearised(data.layouts, fit)
    found = linear @ linear.T + (fit.scales.noise**2 + extra) * np.eye(len(linear))
    for a, b in product(range(len(linear)), repeat=2):
        found[a, b] += fit.scales.residual(data.within[:, a, b], data.sizes[a], data.sizes[b])
    return found


@pytest.mark.parametrize("physics", [1.0, 1.2])
def test_the_factors_are_those_at_which_the_posterior_is_greatest(candidates, physics):
    data = measured(candidates, 0.03 + ERROR / 3)
    fit = data.factors(fit_of(candidates, physics=physics), np.zeros(16))
    mean, linear = linearised(candidates.layouts, fit)
    weights = np.linalg.solve(covariance_of(data, fit), data.log_times - mean)
    assert np.abs(fit.factors).max() > 0.02
    wanted = physics * linear[:, : len(fit.factors)].T @ weights
    assert fit.factors == pytest.approx(wanted, abs=1e-2 * np.abs(wanted).max())


def test_a_step_changes_no_factor_by_more_than_two_spreads(candidates):
    data = measured(candidates, np.full(16, 100.0))
    fit = data.factors(fit_of(candidates, physics=3.0), np.zeros(16))
    assert 4.0 < np.abs(fit.factors).max() <= 6.0 + 1e-9, "three steps"


def value(data, fit, scales):
    """Log of the density of the measured times and of the scales' own priors, up to a constant."""
    covariance = covariance_of(data, replace(fit, scales=scales))
    error = data.log_times - linearised(data.layouts, fit)[0]
    density = -0.5 * error @ np.linalg.inv(covariance) @ error - 0.5 * np.linalg.slogdet(covariance)[1]
    priors = zip(
        scales.values, Scales(by_size=(1.0, 1.0)).values, 5 * [PRIOR_OF_SCALES] + 2 * [PRIOR_OF_SIZES], strict=True
    )
    return density - 0.5 * sum((math.log(scale / usual) / wide) ** 2 for scale, usual, wide in priors)


@pytest.mark.parametrize("size", [0.03, 1.0, 6.0])
def test_of_all_scales_a_step_away_none_explains_the_times_better(candidates, size):
    data = measured(candidates, size * ERROR)
    fit = data.scaled(fit_of(candidates), np.zeros(16))
    best = value(data, fit, fit.scales)
    assert fit.scales != fit_of(candidates).scales
    assert fit.scales.physics >= 1
    assert fit.scales.noise >= LEAST_NOISE
    steps = 0
    for place, factor in product(range(7), (STEP, 1 / STEP)):
        values = fit.scales.values
        other = Scales.of((*values[:place], values[place] * factor, *values[place + 1 :]))
        if other.physics >= 1 and other.noise >= LEAST_NOISE:
            steps += 1
            assert value(data, fit, other) <= best + 1e-9, (place, factor)
    assert steps >= 12


@pytest.mark.parametrize("freedom", [math.inf, FREEDOM])
def test_each_run_is_doubted_by_what_all_others_predict_of_it(candidates, freedom):
    error = np.where(np.arange(16) == 5, 0.3, 0.02 * ERROR)
    data, fit = measured(candidates, error), replace(fit_of(candidates), freedom=freedom)
    found, further = data.disturbances(fit)
    mean, covariance = linearised(data.layouts, fit)[0], covariance_of(data, fit)
    trusted = []
    for one in range(16):
        others = np.arange(16) != one
        gain = covariance[one, others] @ np.linalg.inv(covariance[np.ix_(others, others)])
        slower = data.log_times[one] - mean[one] - gain @ (data.log_times - mean)[others]
        variance = covariance[one, one] - gain @ covariance[others, one]
        trusted.append(trust(np.array([slower]), np.array([variance]), DISTURBED, freedom + 16)[0])
        again = disturbance_variance(np.array([slower]), np.array([variance]), found.disturbed, freedom + 16)[0]
        assert further[one] == pytest.approx(again, rel=1e-6)
    assert trusted[5] < 0.05 < 0.5 < min(np.delete(trusted, 5))
    disturbed = 0.05 * 20 + 16 - sum(trusted)
    assert found.disturbed == pytest.approx(disturbed / (20 + 16)), "a share of 1 in 20 counts as 20 runs"


def test_what_physics_leaves_uncertain_is_that_of_its_parts_factors_and_trainer():
    """As the step-time model's own prior has it, without what lies between neighbours and between two runs."""
    given = [run(dp=8), run(dp=2, pp=4), run(dp=8, zero=3, recompute="full"), run(tp=16, dp=1)]
    given = [one | {"workload": "megatron"} for one in given]
    layouts = made_candidates(given).layouts
    assert layouts.factors.any(axis=1).sum() >= 3
    mean, linear = linearised(layouts, Fit.prior(layouts, Scales(by_size=(1.0,), physics=1.0)))
    assert mean == pytest.approx(layouts.log_median)
    beyond = constants.RESIDUAL.spread**2 + constants.NOISE.spread**2
    assert (linear**2).sum(axis=1) == pytest.approx(layouts.prior_sd**2 - beyond)
