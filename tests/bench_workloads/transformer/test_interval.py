"""The interval of a median: how often it covers, and when sampling may stop."""

from __future__ import annotations

import numpy as np
import pytest

from bench_workloads.transformer.interval import is_known, median_interval
from bench_workloads.transformer.measure import Samples, until_known


@pytest.mark.parametrize(
    ("n", "ranks", "confidence"), [(5, (0, 4), 0.9375), (6, (0, 5), 0.96875), (9, (1, 7), 0.9609375), (1, (0, 0), 0.0)]
)
def test_interval_of_a_median(n, ranks, confidence):
    """Binomial order statistics, e.g. Conover 1999, table A3."""
    found = median_interval([float(i) for i in range(n)])
    assert (found.low, found.high) == ranks
    assert found.confidence == confidence


def test_interval_covers_the_true_median_at_its_confidence():
    """A skewed distribution with median 1, sampled many times."""
    samples = np.random.default_rng(0).lognormal(0.0, 0.5, size=(4000, 12))
    found = [median_interval(row.tolist()) for row in samples]
    share = np.mean([f.low <= 1.0 <= f.high for f in found])
    assert share == pytest.approx(found[0].confidence, abs=0.01)


@pytest.mark.parametrize(("spread", "tolerance"), [(0.02, 0.02), (0.04, 0.02), (0.1, 0.05)])
def test_the_interval_covers_as_often_where_sampling_stops_once_it_is_narrow(spread, tolerance):
    """Adaptive measurement checks after every sample. The reported interval must remain valid."""
    random = np.random.default_rng(0)

    def adaptive() -> bool:
        samples = random.lognormal(0.0, spread, size=5).tolist()
        while len(samples) < 40 and not is_known(samples, tolerance):
            samples.append(float(random.lognormal(0.0, spread)))
        found = median_interval(samples)
        return found.low <= 1.0 <= found.high

    assert np.mean([adaptive() for _ in range(1500)]) > 0.935


def test_a_median_is_known_by_enough_equal_samples():
    assert not is_known([1.0] * 6, 0.01)
    assert is_known([1.0] * 7, 0.01)
    assert not is_known([1.0, 1.1] * 20, 0.01)


def test_an_adaptive_measurement_ends_at_its_most_though_the_median_is_not_known():
    wanted = until_known(tolerance=1e-9, most=4)
    samples = Samples(slowest_s=[1.0])
    counts = []
    for time in (2.0, 3.0, 4.0, 5.0):
        counts.append(wanted(samples))
        samples.slowest_s.append(time)
    assert counts == [True, True, True, False]
