"""Distributions against published tables and numerical integration; conditioning against the textbook's formula."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from sweep.search import chances, gaussian
from sweep.search.gaussian import Belief, Observed, bordered, log_evidence, normal_cdf, normal_density, one_sided

Z = np.linspace(-12.0, 12.0, 48_001)


def students_density(z):
    """Of Student's t with 5 degrees of freedom."""
    return math.gamma(3) / (math.sqrt(5 * math.pi) * math.gamma(2.5)) * (1 + z**2 / 5) ** -3


@pytest.mark.parametrize(("quantile", "share"), [
    (0.0, 0.5), (0.727, 0.75), (1.476, 0.9), (2.015, 0.95), (2.571, 0.975), (4.032, 0.995), (-2.015, 0.05),
])  # fmt: skip
def test_students_t_is_that_of_the_tables(quantile, share):
    """Any table of critical values, 5 degrees of freedom; its standard deviation is the root of 5/3."""
    assert chances.cdf(np.array([quantile]))[0] == pytest.approx(share, abs=2e-4)
    spread = 2 * math.sqrt(5 / 3)
    above = chances.probability_above(np.array([3.0]), np.array([spread]), 3.0 - 2 * quantile)[0]
    assert above == pytest.approx(share, abs=2e-4)


@pytest.mark.parametrize("z", [-6.0, -1.5, -0.3, 0.0, 0.4, 2.0, 5.0])
@pytest.mark.parametrize(("threshold", "spread"), [(0.0, 1.0), (-2.0, 0.3), (3.0, 4.0)])
def test_the_expected_improvement_is_the_integral_over_students_t(z, threshold, spread):
    wide = np.linspace(-100.0, 100.0, 20_001)
    gain = np.maximum(spread * (z + wide), 0) * students_density(wide)
    wanted = float(gain.sum() * (wide[1] - wide[0]))
    mean, deviation = threshold + spread * z, spread * math.sqrt(5 / 3)
    found = chances.expected_improvement(np.array([mean]), np.array([deviation]), np.array([threshold]))
    assert found[0] == pytest.approx(wanted, rel=1e-3)


def test_several_runs_gain_what_the_best_of_those_that_work_gains():
    mean, known = np.array([0.3, 0.5, 0.1]), np.diag(np.full(3, 1e-12))
    gain, chance = chances.together(mean, known, np.ones(3), 0.2, 0.25)
    assert (gain, chance) == (pytest.approx(0.3, abs=0.01), 1.0)
    assert chances.together(mean, known, np.array([1.0, 0.0, 1.0]), 0.2, 0.25) == (pytest.approx(0.1, abs=0.01), 0.0)
    assert chances.together(mean, known, np.zeros(3), 0.2, 0.25) == (0.0, 0.0)
    nothing = (pytest.approx(0.0, abs=1e-12), 0.0)
    assert chances.together(mean, known, np.ones(3), 0.9, 0.25) == nothing, "none is better: nothing is lost either"
    gain, chance = chances.together(mean, known, np.array([0.0, 0.5, 0.0]), 0.2, 0.25)
    assert chance == pytest.approx(0.5, abs=0.1)
    assert gain == pytest.approx(0.3 * chance, abs=0.01)


@pytest.mark.parametrize("works", [0.2, 1.0])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0])
def test_one_run_alone_has_exactly_its_own_gain_and_chance(threshold, works):
    mean, spread = np.array([0.1]), np.array([0.3])
    gain, chance = chances.together(mean, np.diag(spread**2), np.array([works]), threshold, 0.05)
    assert gain == pytest.approx(works * chances.expected_improvement(mean, spread, np.array([threshold])).item())
    assert chance == pytest.approx(works * chances.probability_above(mean, spread, threshold + 0.05).item())


def test_correlated_runs_do_not_add_up_and_independent_ones_nearly_do():
    mean, works = np.zeros(4), np.ones(4)
    one = chances.expected_improvement(mean[:1], np.ones(1), np.array([2.0])).item()
    equal, _ = chances.together(mean, np.ones((4, 4)), works, 2.0, 0.1)
    apart, _ = chances.together(mean, np.eye(4), works, 2.0, 0.1)
    assert equal == pytest.approx(one, rel=0.01)
    assert 2.5 * one < apart <= 4 * one


def test_the_wider_a_run_may_vary_the_more_it_may_gain():
    gains = [
        chances.together(np.zeros(2), np.eye(2) * spread**2, np.ones(2), 0.5, 0.1)[0] for spread in (0.1, 0.5, 2.0)
    ]
    assert gains == sorted(gains)
    assert gains[0] < 0.01 < 0.5 < gains[2]


def test_the_normal_distribution_is_pythons():
    z = np.linspace(-6, 6, 241)
    normal = NormalDist()
    assert normal_cdf(z) == pytest.approx([normal.cdf(one) for one in z], abs=2e-7)
    assert normal_density(z) == pytest.approx([normal.pdf(one) for one in z], rel=1e-9)
    assert normal_density(np.array([1e9]))[0] == pytest.approx(0.0, abs=1e-100)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("variance", [0.06, 1.0, 4.0])
@pytest.mark.parametrize("mean", [-0.7, -0.2, 0.0, 0.7, 1.5])
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
def test_beliefs_are_the_conditional_distribution(prior, number):
    """Rasmussen and Williams 2006, equation 2.19, with more observations than there is room for at first."""
    mean, covariance = prior
    indices, noise = np.arange(number), np.full(number, 0.3)
    values = mean[indices] + np.sin(indices)
    gain = covariance[:, indices] @ np.linalg.inv(covariance[np.ix_(indices, indices)] + np.diag(noise))
    wanted_mean, wanted = mean + gain @ (values - mean[indices]), covariance - gain @ covariance[indices]

    def column(index):
        return covariance[:, index]

    stepwise = Belief(mean, np.diag(covariance), column, room=1)
    for index, value in zip(indices.tolist(), values, strict=True):
        stepwise.observe(index, value, 0.3)
    once, rest = Belief(mean, np.diag(covariance), room=max(number, 1)), np.array([85, 88])
    within = covariance[np.ix_(indices, indices)] + np.diag(noise)
    once.learn_first(covariance[indices], Observed.of(within, values - mean[indices]))
    for found in (stepwise, once):
        assert np.allclose(found.mean, wanted_mean)
        assert np.allclose(found.variance, np.diag(wanted))
        explained = found.explained(rest)
        assert np.allclose(covariance[np.ix_(rest, rest)] - explained.T @ explained, wanted[np.ix_(rest, rest)])
    assert np.array_equal(mean, prior[0]), "the prior's own arrays stay"


def test_what_is_left_of_a_variance_is_never_below_nothing():
    belief = Belief(np.zeros(1), np.array([-1e-12]), lambda _: np.array([-1e-12]))
    belief.observe(0, 1.0, 0.1)
    assert np.isfinite(belief.mean).all()


def test_a_narrowing_by_less_than_a_fiftieth_is_not_learned():
    found = [one_sided(mean, 1.0, 0.0) for mean in np.linspace(0, 4, 41)]
    learned = [1 / (1 + noise) for _, noise, _ in found if math.isfinite(noise)]
    assert min(learned) >= gaussian.LEAST_LEARNED
    assert min(learned) < 1.5 * gaussian.LEAST_LEARNED


def test_what_is_as_good_as_impossible_teaches_nothing_and_divides_by_nothing():
    """A hundred standard deviations off: probability and density are both 0 to a computer."""
    assert one_sided(-100.0, 1.0, 0.0) == (-100.0, math.inf, 0.0)
