"""Chances and expected gains, against drawn rates."""

import numpy as np
import pytest

from sweep.search.chances import expected_improvement, probability_above, together


def test_the_chance_to_be_better():
    chances = probability_above(np.array([-10.0, 0.0, 10.0]), np.full(3, 0.1), 0.0)
    assert chances[1] == 0.5
    assert chances[0] < 1e-4
    assert chances[0] + chances[2] == pytest.approx(1)


def test_expected_gains_are_those_of_drawn_rates():
    generator = np.random.default_rng(0)
    drawn = -0.1 + 0.2 * np.sqrt(3 / 5) * generator.standard_t(5, size=400_000)
    assert drawn.std() == pytest.approx(0.2, rel=0.01)
    expected = expected_improvement(np.array([-0.1]), np.array([0.2]), np.float64(0.05))[0]
    assert expected == pytest.approx(np.maximum(drawn - 0.05, 0).mean(), rel=0.03)


def test_similar_runs_gain_no_more_together_than_one():
    alone = np.full((6, 6), 0.04) + np.eye(6) * 1e-6
    mean, works = np.full(6, -0.1), np.ones(6)
    same, _ = together(mean, alone, works, 0.0, 0.02)
    different, _ = together(mean, np.eye(6) * 0.04, works, 0.0, 0.02)
    one = expected_improvement(mean[:1], np.array([0.2]), np.float64(0.0))[0]
    assert same == pytest.approx(one, rel=0.35)
    assert different > 2.5 * same
