"""A posterior in parts, against the conditional distribution, and against itself whenever its parts are asked for."""

import numpy as np
import pytest

from sweep.search import step_times
from sweep.search.step_times import Covariances
from tests.support.configurations import made_candidates, run
from tests.support.fitted_times import fitted_to


def test_a_part_that_is_asked_for_late_is_what_it_had_been_early_and_no_other_is_asked():
    given = [{**run(dp=8, mbs=2**at), "nodes": nodes} for nodes in (1, 2, 4) for at in range(4)]
    c, everyone = made_candidates(given), np.arange(12)
    times = np.log(c.layouts.parts.sum(axis=1))
    late, early = (fitted_to(c, np.array([1, 2]), times[1:3])[1] for _ in range(2))
    for row in (9, 0, 10, 1):
        late.observe(row, times[row] + 0.1, 0.3)
        early.observe(row, times[row] + 0.1, 0.3)
        early.moments(everyone)
    assert set(late._posteriors) == {0, 2}, "those of which a candidate was observed"
    for own, other in zip(late.moments(everyone), early.moments(everyone), strict=True):
        assert own == pytest.approx(other, rel=1e-12)


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
