"""Small-sample statistics: against tables, exact formulas and random samples."""

import math

import numpy as np
import pytest

from sweep.physics.statistics import (
    MEDIAN_FACTOR,
    SURENESS,
    holm,
    log_median_variance,
    over_looks,
    pooled_variance,
    robust_spread,
    student_quantile,
    student_two_sided,
    variance_ratio_chance,
)


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(2.228, 10, 0.05), (12.706, 1, 0.05), (3.25, 9, 0.01), (1.959964, 1e6, 0.05), (0, 5, 1)]
)
def test_students_t_is_that_of_the_tables(t, freedom, p):
    assert student_two_sided(t, freedom) == pytest.approx(p, abs=2e-4)
    assert student_two_sided(-t, freedom) == student_two_sided(t, freedom)
    if p < 1:
        assert student_quantile(1 - p, freedom) == pytest.approx(t, rel=1e-3)


@pytest.mark.parametrize("t", [0.01, 0.7, 2.0, 30.0])
def test_students_t_of_one_and_two_degrees_of_freedom_is_exact(t):
    assert student_two_sided(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-12)
    assert student_two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert (student_two_sided(math.inf, 5), student_two_sided(math.nan, 5)) == (0, 1)


def test_at_each_look_a_share_of_the_level_is_spent():
    assert [over_looks(0.01, look) for look in (1, 2, 9, 10)] == pytest.approx([0.02, 0.06, 0.9, 1.0])
    assert sum(0.01 / over_looks(0.01, look) for look in range(1, 10)) < 1, "in all no more than the level"


def test_holms_procedure():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1, 1]


def test_the_spread_within_groups_ignores_the_few_that_changed():
    random = np.random.default_rng(3)
    for size in (2, 80):
        many = random.normal(0, 0.01, (80_000 // size, size))
        assert robust_spread(many)[0] == pytest.approx(0.01, rel=0.012)
    groups = [list(random.normal(at, 0.01, 6)) for at in range(20)]
    for group in groups[:4]:
        group[0] += 0.5
    assert robust_spread(groups)[0] == pytest.approx(0.01, rel=0.25)
    assert robust_spread([[1.0], [2.0]]) == (0, 0)
    assert robust_spread([[0.0, 1.0]] * 4 + [[0.0, 99.0]])[1] == pytest.approx(SURENESS * 5 * 8 / 10)


def test_the_variance_of_a_median_is_that_of_many_medians():
    random = np.random.default_rng(4)
    samples = np.exp(random.normal(0, 0.02, (4000, 9)))
    true = np.var(np.log(np.median(samples, axis=1)))
    stated = np.mean([log_median_variance(sample)[0] for sample in samples[:500]])
    assert stated == pytest.approx(true, rel=0.15)
    assert log_median_variance([0.1, 0.1]) == (0, 0)
    assert log_median_variance([1.0, 0.0, 2.0, 1.5]) == log_median_variance([1.0, 2.0, 1.5]), "no time took none"
    assert log_median_variance([1.0, 1.0, 1.0, 2.0])[0] > 0, "most are equal"
    assert pooled_variance([[1.0, 3.0], [5.0]]) == (2.0, 1)


@pytest.mark.parametrize("size", [*range(3, 10), 20])
def test_of_few_iterations_with_an_outlier_the_deviation_is_right_on_average(size):
    """Median absolute deviations of normal samples times the correction; an outlier makes it the one that counts."""
    samples = np.random.default_rng(5).normal(0, 1, (40_000, size))
    mean = np.mean(np.median(np.abs(samples - np.median(samples, axis=1)[:, None]), axis=1))
    outlier = np.exp([*np.linspace(-0.01, 0.01, size - 1), 5.0])
    logarithms = np.log(outlier)
    distance = np.median(np.abs(logarithms - np.median(logarithms)))
    expected = (MEDIAN_FACTOR * distance / mean) ** 2 / size
    assert log_median_variance(outlier) == (pytest.approx(expected, rel=0.03), size - 1)


@pytest.mark.parametrize(
    ("ratio", "above", "below", "chance"),
    [(3.7083, 3, 10, 0.05), (1.0, 5, 5, 0.5), (161.4476, 1, 1, 0.05), (2.9782, 10, 10, 0.05)],
)
def test_the_f_distribution(ratio, above, below, chance):
    """Of printed tables (Abramowitz and Stegun, table 26.9)."""
    assert variance_ratio_chance(ratio, above, below) == pytest.approx(chance, abs=1e-4)
    assert variance_ratio_chance(math.nan, above, below) == 1.0
    assert variance_ratio_chance(math.inf, above, below) == 0.0
