"""What measured runs show of the others: fits of the step-time model, on synthetic clusters with known rates."""

import itertools

import numpy as np
import pytest

from sweep.physics.hardware import Gpu
from sweep.physics.step_time import PARTS
from sweep.physics.unknown_trainer import NAMES
from sweep.search.scales import Scales
from sweep.search.step_times import StepTimes
from tests.support.configurations import made_candidates, run
from tests.support.fitted_times import fitted_to
from tests.support.synthetic_cluster import truth


def mean(posterior):
    """Of all candidates."""
    return posterior.moments(np.arange(len(posterior._parts.of)))[0]


def spread(posterior, rows):
    return np.sqrt(posterior.moments(rows)[1])


def learned(recorded, seconds, rows):
    """Mean of the log seconds of all candidates once those of the rows were measured."""
    c = recorded.candidates
    return fitted_to(c, rows, np.log(seconds[rows]))


def test_the_fit_finds_which_part_is_slow():
    recorded = truth(3)
    parts = recorded.candidates.layouts.parts
    seconds = parts @ np.where(np.arange(parts.shape[1]) == len(PARTS) + NAMES.index("work"), 3.0, 1.0)
    error = np.abs(np.log(parts.sum(axis=1)) - np.log(seconds)).mean()
    _, posterior = learned(recorded, seconds, np.arange(0, len(parts), 4))
    assert np.abs(mean(posterior) - np.log(seconds)).mean() < 0.1 * error


def test_repeats_of_one_layout_give_the_noise():
    """Sixty runs of one configuration, a tenth apart, though half a percent to five are usual."""
    given = [run(dp=8, repeat=repeat) for repeat in range(60)]
    c = made_candidates(given)
    seconds = c.layouts.parts.sum(axis=1) * np.exp(0.1 * np.random.default_rng(0).standard_normal(60))
    fit, _ = fitted_to(c, np.arange(60), np.log(seconds))
    assert 0.1 / 1.3 < fit.scales.noise < 0.1 * 1.3


def test_before_any_measurement_what_the_formulas_lack_is_as_much_as_published_models_are_off():
    """0.2 to 0.4 of the logarithm, of a layout with all axes."""
    values = itertools.product((1, 2), (1, 2), (1, 2), (0, 1))
    given = [run(tp=tp, pp=pp, mbs=mbs, zero=zero) for tp, pp, mbs, zero in values]
    kernel = made_candidates(given).kernel
    lacking = Scales(by_size=(1.0,)).residual(kernel.variances, 0, 0)
    assert 0.2 < np.sqrt(lacking) < 0.4


def test_one_disturbed_run_does_not_mislead():
    recorded = truth(3)
    seconds = recorded.candidates.layouts.parts.sum(axis=1)
    disturbed = np.where(np.arange(len(seconds)) == 5, 30.0, 1.0) * seconds
    _, posterior = learned(recorded, disturbed, np.arange(len(seconds)))
    others = np.arange(len(seconds)) != 5
    assert np.abs(mean(posterior) - np.log(seconds))[others].mean() < 0.03


def test_sizes_on_which_runs_differ_wildly_stay_uncertain():
    """On four nodes runs are up to ten times slower than predicted, each by itself; on one they are as predicted."""
    recorded = truth(3)
    c, wild = recorded.candidates, np.exp(np.abs(np.random.default_rng(0).normal(0, 1, len(recorded.candidates))))
    seconds = c.layouts.parts.sum(axis=1) * np.where(c.nodes == 4, wild, 1.0)
    fit, posterior = learned(recorded, seconds, np.arange(0, len(c), 3))
    left = np.setdiff1d(np.arange(len(c)), np.arange(0, len(c), 3))
    calm, disturbed = (np.median(spread(posterior, left[c.nodes[left] == nodes])) for nodes in (1, 4))
    assert disturbed > 0.3
    assert calm < 0.1
    assert fit.scales.by_size[1] > 3 * fit.scales.by_size[0]


@pytest.mark.parametrize("workload", ["somebody", "nanotron"])
def test_what_no_run_tested_stays_uncertain(workload):
    """Six of eight runs without a pipeline narrow the other two, and hardly the same ones with one."""
    given = [
        run(pp=pp, mbs=mbs, zero=zero, dp=8 // pp, gas=64 // mbs, workload=workload)
        for pp in (1, 2) for zero in (0, 1) for mbs in (1, 2, 4, 8)
    ]  # fmt: skip
    c = made_candidates(given)
    rows = np.array([0, 2, 3, 4, 5, 7])
    _, posterior = fitted_to(c, rows, np.log(c.layouts.parts.sum(axis=1)[rows]) + 0.3)
    left = [1, 6]
    assert (1.5 * spread(posterior, np.array(left)) < spread(posterior, np.array(left) + 8)).all()


def test_a_slow_network_shows_in_every_part_that_crosses_it_and_not_on_one_node():
    """A pipeline's sends over the network were slow: so are gradients there, of which no run was measured."""
    slower = {}
    for nodes in (1, 2):
        layouts = ({"pp": 8 * nodes, "mbs": 8, "gas": 32}, {"dp": 8 * nodes, "gas": 1})
        runs = [{**run(workload="somebody", **layout), "nodes": nodes} for layout in layouts]
        gpu = Gpu(name="unnamed", peaks_flops={"bf16": 1e15}, memory_bytes=80 * 10**9, link_bytes_per_s=2e9)
        candidates = made_candidates(runs, gpu)
        times = StepTimes(candidates.layouts, candidates.sizes, candidates.kernel)
        prior = times.posterior(times.unmeasured())
        _, posterior = fitted_to(candidates, np.array([0]), mean(prior)[:1] + 2.0)
        slower[nodes] = float(mean(posterior)[1] - mean(prior)[1])
    assert slower[2] > 2 * slower[1]
