"""A posterior in parts, against the conditional distribution, and against itself whenever its parts are asked for."""

import numpy as np
import pytest

from sweep.search import step_times
from sweep.search.gaussian import Observed
from sweep.search.step_times import Covariances, Parts, PosteriorInParts
from tests.support.configurations import made_candidates, run
from tests.support.fitted_times import fitted_to

OF = np.array([2, 0, 0, 1, 2, 1, 0, 2, 1, 0, 2, 2])
"""number of each candidate's part"""
NOISE = 0.3


class Given:
    """A prior whose covariance is a given matrix."""

    def __init__(self, mean, covariance):
        self.mean, self.covariance = mean, covariance
        self.rows = Parts(OF).rows
        self.asked = []

    def moments(self, part):
        self.asked.append(part)
        return self.mean[self.rows[part]], np.diag(self.covariance)[self.rows[part]]

    def between(self, observed, part):
        return self.covariance[np.ix_(observed, self.rows[part])]

    def within(self, rows):
        return self.covariance[np.ix_(rows, rows)]


def prior():
    generator = np.random.default_rng(3)
    root = generator.normal(size=(12, 12))
    return Given(generator.normal(size=12), root @ root.T / 12)


def begun(given, first):
    covariance = given.within(first) + NOISE * np.eye(len(first))
    return PosteriorInParts(Parts(OF), given, first, Observed.of(covariance, np.sin(first) - given.mean[first]))


def test_a_part_that_is_asked_for_late_is_what_it_had_been_early_and_no_other_is_asked():
    late, early = (begun(prior(), np.array([1, 2])) for _ in range(2))
    for row in (6, 0, 9, 1):
        late.observe(row, 1.0, NOISE)
        early.observe(row, 1.0, NOISE)
        early.moments(np.arange(12))
    assert set(late._prior.asked) == {0, 2}, "those of which a candidate was observed"
    for own, other in zip(late.moments(np.arange(12)), early.moments(np.arange(12)), strict=True):
        assert (own == other).all()


@pytest.fixture(scope="module")
def candidates():
    given = [{**run(dp=8, mbs=2**at, zero=at % 2), "nodes": nodes} for nodes in (1, 2) for at in range(6)]
    return made_candidates(given)


def test_covariances_with_measured_runs_are_the_same_however_many_are_stored(candidates, monkeypatch):
    monkeypatch.setattr(step_times, "MOST_STORED", 4)
    kernel, rows = candidates.kernel, np.array([0, 3, 8])
    found = Covariances(kernel, rows)
    for indices in ([3], [3, 1], [1, 7, 3], [2, 9, 7, 1], [9, 9], [5, 6]):
        assert (found.of(np.array(indices)) == kernel.columns(np.array(indices), rows)).all()


def test_a_run_of_two_nodes_conditions_one_node_by_the_joint_distribution(candidates):
    """The layouts' own effects differ in scale by number of nodes; the covariance is taken from the prior's."""
    c, rows = candidates, np.arange(0, 12, 2)
    times = np.log(c.layouts.parts.sum(axis=1)) + 0.1 * np.cos(np.arange(12)) * (c.nodes == 2)
    _, posterior = fitted_to(c, rows, times[rows])
    everyone = np.arange(12)
    before, (mean, variance) = posterior.covariance(everyone), posterior.moments(everyone)
    assert np.diag(before) == pytest.approx(variance)
    posterior.observe(9, float(mean[9]) + 0.2, 0.01)
    gain = before[:, 9] / (before[9, 9] + 0.01)
    assert posterior.moments(everyone)[0] == pytest.approx(mean + 0.2 * gain)
    assert posterior.covariance(everyone) == pytest.approx(before - np.outer(gain, before[9]))
