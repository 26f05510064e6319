"""Distributions against published tables and numerical integration; conditioning against the textbook's formula."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from sweep.search import gaussian
from sweep.search.gaussian import (
    GaussianPosterior,
    Observed,
    bordered,
    expected_improvement,
    log_evidence,
    normal_cdf,
    one_sided,
)

Z = np.linspace(-12.0, 12.0, 48_001)


def students_density(z):
    """Of Student's t with 5 degrees of freedom."""
    return math.gamma(3) / (math.sqrt(5 * math.pi) * math.gamma(2.5)) * (1 + z**2 / 5) ** -3


@pytest.mark.parametrize("z", [-6.0, -1.5, -0.3, 0.0, 0.4, 2.0, 5.0])
@pytest.mark.parametrize(("threshold", "spread"), [(0.0, 1.0), (-2.0, 0.3), (3.0, 4.0)])
def test_the_expected_improvement_is_the_integral_over_students_t(z, threshold, spread):
    wide = np.linspace(-100.0, 100.0, 20_001)
    gain = np.maximum(spread * (z + wide), 0) * students_density(wide)
    wanted = float(gain.sum() * (wide[1] - wide[0]))
    mean, deviation = threshold + spread * z, spread * math.sqrt(5 / 3)
    found = expected_improvement(np.array([mean]), np.array([deviation]), np.array([threshold]))
    assert found[0] == pytest.approx(wanted, rel=1e-3)


def test_the_normal_distribution_is_pythons():
    z = np.linspace(-6, 6, 241)
    normal = NormalDist()
    assert normal_cdf(z) == pytest.approx([normal.cdf(one) for one in z], abs=2e-7)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("variance", [0.06, 1.0, 4.0])
@pytest.mark.parametrize("mean", [-1.5, -0.7, -0.2, 0.0, 0.7, 1.5])
def test_what_one_side_teaches_has_the_mean_and_chance_of_the_true_posterior(mean, variance, share):
    """x is normal; the event is certain where x > 0 and has probability ``share`` elsewhere."""
    spread = math.sqrt(variance)
    x = mean + spread * Z
    weight = np.exp(-0.5 * Z**2) * np.where(x > 0, 1.0, share)
    posterior, chance = float((x * weight).sum() / weight.sum()), float(weight[x > 0].sum() / weight.sum())
    value, noise, found = one_sided(mean, variance, share)
    assert found == pytest.approx(chance, abs=1e-3)
    if math.isinf(noise):
        return
    step = variance / (variance + noise)
    assert mean + step * (value - mean) == pytest.approx(posterior, abs=5e-3 * spread)
    left = float(((x - posterior) ** 2 * weight).sum() / weight.sum())
    assert variance * (1 - step) == pytest.approx(left, abs=5e-3 * variance)


def test_an_expected_event_teaches_nothing_and_an_event_of_any_cause_neither():
    assert one_sided(5.0, 1.0, 0.0)[1] == math.inf
    assert one_sided(-1.0, 1.0, 1.0)[1] == math.inf


def test_the_evidence_is_the_density_of_the_values():
    covariance, values = np.array([[2.0, 0.6], [0.6, 1.0]]), np.array([0.7, -1.2])
    determinant = 2.0 * 1.0 - 0.6**2
    inverse = np.array([[1.0, -0.6], [-0.6, 2.0]]) / determinant
    wanted = -0.5 * values @ inverse @ values - 0.5 * math.log(determinant)
    assert log_evidence(bordered(covariance, values)) == pytest.approx(wanted)
    assert log_evidence(bordered(np.array([[1.0, 2.0], [2.0, 1.0]]), values)) == -math.inf, "no covariance"


@pytest.fixture
def prior():
    generator = np.random.default_rng(4)
    root = generator.normal(size=(90, 90))
    return generator.normal(size=90), root @ root.T / 90


@pytest.mark.parametrize("number", [0, 1, 70])
def test_the_posterior_is_the_conditional_distribution(prior, number):
    """Rasmussen and Williams 2006, equation 2.19, with more observations than there is room for at first."""
    mean, covariance = prior
    indices, noise = np.arange(number), np.full(number, 0.3)
    values = mean[indices] + np.sin(indices)
    gain = covariance[:, indices] @ np.linalg.inv(covariance[np.ix_(indices, indices)] + np.diag(noise))
    wanted_mean, wanted = mean + gain @ (values - mean[indices]), covariance - gain @ covariance[indices]

    def column(index):
        return covariance[:, index]

    stepwise = GaussianPosterior(mean, np.diag(covariance), column, room=1)
    for index, value in zip(indices.tolist(), values, strict=True):
        stepwise.observe(index, value, 0.3)
    once, rest = GaussianPosterior(mean, np.diag(covariance), room=max(number, 1)), np.array([85, 88])
    within = covariance[np.ix_(indices, indices)] + np.diag(noise)
    once.learn_first(covariance[indices], Observed.of(within, values - mean[indices]))
    for found in (stepwise, once):
        assert np.allclose(found.mean, wanted_mean)
        assert np.allclose(found.variance, np.diag(wanted))
        explained = found.explained(rest)
        assert np.allclose(covariance[np.ix_(rest, rest)] - explained.T @ explained, wanted[np.ix_(rest, rest)])
    assert np.array_equal(mean, prior[0]), "the prior's own arrays stay"


def test_what_is_left_of_a_variance_is_never_below_nothing():
    posterior = GaussianPosterior(np.zeros(1), np.array([-1e-12]), lambda _: np.array([-1e-12]))
    posterior.observe(0, 1.0, 0.1)
    assert np.isfinite(posterior.mean).all()


def test_a_narrowing_by_less_than_a_fiftieth_is_not_learned():
    found = [one_sided(mean, 1.0, 0.0) for mean in np.linspace(0, 4, 41)]
    learned = [1 / (1 + noise) for _, noise, _ in found if math.isfinite(noise)]
    assert min(learned) >= gaussian.LEAST_LEARNED
    assert min(learned) < 1.5 * gaussian.LEAST_LEARNED


@pytest.mark.parametrize("z", [-3.5, -8.0, -100.0])
def test_an_event_far_from_what_was_believed_is_learned_all_the_same(z):
    """Density and probability are both 0 to a computer: x is a little above 0, by 1 / -z to first order."""
    value, noise, chance = one_sided(z, 1.0, 0.0)
    assert chance == 1.0
    step = 1 / (1 + noise)
    assert z + step * (value - z) == pytest.approx(1 / (-z + 2 / -z), rel=0.02)
    assert 1 - step < 0.1


def test_a_failure_far_from_the_memory_is_of_another_cause():
    assert one_sided(-100.0, 1.0, 0.1) == (-100.0, math.inf, 0.0)
