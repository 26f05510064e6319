"""Where runs run out of memory, and what a search does where the stated memory is not the runs'."""

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.search.candidates import from_configurations
from sweep.search.gaussian import normal_cdf
from sweep.search.memory_limit import MemoryLimit
from sweep.search.observations import Known
from tests.support.configurations import run

STATED = 85e9
"""an H100's"""


def above(limit, peak, spread=0.02):
    return float(limit.above(np.array([np.log(peak)]), np.array([spread**2]))[0])


def test_the_stated_memory_counts_until_runs_refute_it():
    limit = MemoryLimit()
    assert above(limit, 0.85) > 0.95
    assert above(limit, 1.15) < 0.03
    limit.is_above(np.log(0.9), 1e-4)
    assert above(limit, 1.15) < 0.03
    limit.is_above(np.log(1.15), 1e-4)
    assert above(limit, 1.0) > 0.98
    assert 0.5 < above(limit, 1.3) < 0.95
    assert above(limit, 8.0) < 0.1


FINE = np.linspace(-4.0, 4.0, 8_001)


@pytest.mark.parametrize(
    "ends",
    [
        [], [("above", 0.9, 1e-4)], [("above", 1.3, 1e-2), ("above", 1.9, 1e-2)],
        [("below", 0.6, 1e-3)] * 3, [("above", 1.5, 1e-3), ("below", 2.0, 1e-3)],
        [("above", 0.4, 1e-2), ("below", 0.55, 1e-2), ("below", 0.5, 1e-2)],
    ],
)  # fmt: skip
def test_the_chance_to_fit_is_that_of_bayes_rule_on_a_fine_grid(ends):
    """98 % that the memory is as stated, to 4 % and 4 % below; else any within a factor of e or so."""
    chance = np.zeros(len(FINE))
    for odds, error in ((0.98, 0.04), (0.02, 1.0)):
        density = np.exp(-0.5 * ((FINE + 0.04) / error) ** 2)
        chance += odds * density / density.sum()
    limit = MemoryLimit()
    for word, peak, variance in ends:
        exceeds = normal_cdf((FINE - np.log(peak)) / np.sqrt(variance))
        if word == "above":
            limit.is_above(np.log(peak), variance)
            chance *= exceeds
        else:
            limit.is_below(np.log(peak), variance, 0.2)
            chance *= 0.2 + 0.8 * (1 - exceeds)
    for peak in np.linspace(-1.5, 2.5, 41):
        wanted = chance @ normal_cdf((FINE - peak) / 0.1) / chance.sum()
        assert above(limit, np.exp(peak), 0.1) == pytest.approx(wanted, abs=0.03)


def test_failures_below_the_stated_memory_lower_it_only_if_their_peaks_are_known():
    sure, unsure = MemoryLimit(), MemoryLimit()
    for _ in range(3):
        sure.is_below(np.log(0.5), 0.02**2, 0.0)
        unsure.is_below(np.log(0.5), 0.02**2, 0.9)
    assert above(sure, 0.7) < 0.2
    assert above(unsure, 0.7) > 0.9


@pytest.mark.parametrize("outcome", [Outcome.OOM_CUDA, Outcome.UNKNOWN])
def test_between_a_success_and_a_failure_lies_the_limit(outcome):
    limit = MemoryLimit()
    limit.is_above(np.log(1.5), 1e-4)
    limit.is_below(np.log(2.0), 1e-4, 0.0 if outcome is Outcome.OOM_CUDA else 0.1)
    assert above(limit, 1.4) > 0.9
    assert above(limit, 2.3) < 0.35
    assert above(limit, 1.4) > above(limit, 1.75) > above(limit, 2.3)


@pytest.mark.parametrize("workload", ["somebody", "nanotron"])
def test_a_run_that_worked_above_the_stated_memory_keeps_others_possible(workload):
    """Four times the predicted peaks, twice the stated memory, and all work: the next larger one may too."""
    given = [run(mbs=mbs, zero=1, dp=8, gas=64 // mbs, workload=workload) for mbs in (1, 2, 4, 8)]
    known = Known(from_configurations([f"run-{i:016x}" for i in range(4)], given, GPUS["h100"]))
    for place, share in enumerate((0.9, 1.3, 2.0)):
        known.end(place, Outcome.OK, 1000.0 * (place + 1), share * STATED)
    last = np.array([3])
    assert known.success(last)[0] > 0.2
    assert not known.infeasible[3] or known.candidates.impossible[3]


def test_a_limit_that_many_runs_refute_leaves_the_other_alone():
    """Its odds become smaller than any number."""
    limit = MemoryLimit()
    with np.errstate(all="raise", under="ignore"):
        for _ in range(60):
            limit.is_above(np.log(2.0), 1e-6)
            limit.is_below(np.log(2.2), 1e-6, 0.0)
        assert limit._weights[0].sum() == 0
        assert above(limit, 1.5) > 0.999
        assert above(limit, 3.0) < 0.001
        assert limit.moments()[0] == pytest.approx(np.log(2.1), abs=0.05)


def test_a_limit_is_never_known_better_than_the_grid_of_its_hypothesis():
    """The stated memory's points are a fortieth of its error, 0.001, apart."""
    limit = MemoryLimit()
    for _ in range(60):
        limit.is_above(-0.0401, 0.0)
        limit.is_below(-0.0399, 0.0, 0.0)
    mean, variance = limit.moments()
    assert (mean, variance) == (pytest.approx(-0.04, abs=1e-5), pytest.approx(0.001**2))
    peaks = np.array([-0.042, -0.041, -0.04, -0.039])
    assert limit.above(peaks, np.zeros(4)) == pytest.approx(normal_cdf((mean - peaks) / 0.001), abs=1e-3)


def test_an_end_is_read_by_the_likelier_hypothesis():
    limit = MemoryLimit()
    mean, variance = limit.moments()
    assert (mean, variance) == (pytest.approx(-0.04), pytest.approx(0.04**2, rel=0.03))
    limit.is_above(np.log(1.5), 1e-4)
    mean, variance = limit.moments()
    assert mean > np.log(1.5)
    assert variance > 0.1


def test_a_peak_that_is_known_exactly_divides_the_grid_of_limits_within_half_a_step():
    """At its own point half of the probability, one point further that of two standard deviations."""
    limit = MemoryLimit()
    for hypothesis, at in ((0, 3), (1, 10)):
        exceeds = limit._exceeds(float(limit._points[hypothesis, at]), 0.0)[hypothesis]
        assert exceeds[at - 1 : at + 2] == pytest.approx(normal_cdf(np.array([-2.0, 0.0, 2.0])))
