"""The posterior of all step times, against the conditional distribution."""

import numpy as np
import pytest

from sweep.physics.hardware import GPUS
from sweep.search import step_times
from sweep.search.candidates import from_configurations
from tests.support.configurations import run
from tests.support.fitted_times import fitted_to


@pytest.fixture(scope="module")
def candidates():
    given = [{**run(dp=8, mbs=2**at, zero=at % 2), "nodes": nodes} for nodes in (1, 2) for at in range(6)]
    return from_configurations([f"run-{i:016x}" for i in range(12)], given, GPUS["h100"])


def test_covariances_with_measured_runs_are_the_same_however_many_are_stored(candidates, monkeypatch):
    monkeypatch.setattr(step_times, "MOST_STORED", 4)
    kernel, everyone = candidates.kernel, np.arange(12)
    found = step_times.Columns(kernel)
    for indices in ([3], [3, 1], [1, 7, 3], [2, 9, 7, 1], [9, 9], [5, 6]):
        assert (found.of(np.array(indices)) == kernel.columns(np.array(indices), everyone)).all()


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
