"""The noise of a change and its test, by hand from few numbers."""

import math

import numpy as np
import pytest

from analysis.compare import noise as n
from analysis.compare.comparison import compare
from analysis.compare.noise import Noise
from analysis.metrics import METRICS
from sweep.errors import SweepError
from sweep.physics.statistics import (
    MEDIAN_FACTOR,
    holm,
    log_median_variance,
    robust_spread,
    student_quantile,
    student_two_sided,
)
from tests.support.compared import noisy

RATE, MEMORY = METRICS["tokens_per_second_per_gpu"], METRICS["peak_memory_bytes"]
TIMES = [1.0, 1.02, 0.99, 1.01, 1.05]
WIDE = [1.0, 1.2, 0.8, 1.1, 0.9]
NOISE = Noise(deviation=0.03, freedom=7, estimated=True)


def row(value=100.0, repeats=1, times=TIMES, nodes=1):
    return {"value": value, "repeats": repeats, "step_times_s": times, "model": "8B", "nodes": nodes}


def gained(gain, times=TIMES, nodes=1, repeats=1):
    """A pair whose gain is that."""
    return row(100.0, 1, times, nodes), row(100.0 * math.exp(gain), repeats, times, nodes)


def expected(gain, parts):
    """By Welch and Satterthwaite, from (variance, degrees of freedom)."""
    variance = sum(part for part, _ in parts)
    uncertainty = sum(part**2 / freedom for part, freedom in parts if freedom)
    freedom = variance**2 / uncertainty if uncertainty else 1e6
    p = student_two_sided(gain / math.sqrt(variance), freedom)
    return pytest.approx((gain, math.sqrt(variance), freedom, p))


def test_the_variance_of_a_change_is_of_both_runs_iterations_and_the_noise_between_runs():
    variance, freedom = log_median_variance(TIMES)
    shared = (0.03**2 * (1 / 2 + MEDIAN_FACTOR**2 / 4) / 2, 7)
    pair = row(100.0, 2), row(110.0, 4)
    parts = [(variance / 2, freedom), (variance / 4, freedom), shared]
    assert n.tested([pair], RATE, NOISE) == expected(math.log(1.1), parts)
    usual = Noise(deviation=0.03, freedom=7, estimated=True, iterations=0.01)
    for times in ([1.0] * 5, None, math.nan):
        same = row(100.0, 1, times), row(110.0, 1, times)
        no_less = [(1e-4, 4 if times == [1.0] * 5 else 0)] * 2
        assert n.tested([same], RATE, usual) == expected(math.log(1.1), [*no_less, (0.03**2, 7)])
    assert n.tested([(row(100.0), row(90.0))], MEMORY, NOISE) == expected(math.log(100 / 90), [(0.03**2, 7)])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_change_of_several_runs_is_their_median_with_the_variance_of_a_median(count):
    pairs = [(row(100.0), row(100.0 + 2 * at)) for at in range(count)]
    variance, freedom = log_median_variance(TIMES)
    factor = (MEDIAN_FACTOR**2 if count > 2 else 1.0) / count**2
    parts = [(variance * factor, freedom)] * 2 * count + [(count * 0.03**2 * factor, 7)]
    gain = float(np.median([math.log(1 + 0.02 * at) for at in range(count)]))
    assert n.tested(pairs, RATE, NOISE) == expected(gain, parts)


def test_a_change_without_any_variance_is_not_tested():
    assert n.welch(0.1, [(0.0, 3.0)]) == (0.1, 0.0, 1e6, 1.0)
    assert n.welch(0.1, [(0.0004, 0.0)])[2] == 1e6, "without any estimate the normal distribution"
    assert n.welch(0.1, [(0.0004, 1.0)])[2] == 1


def test_changes_are_ratios_within_their_95_per_cent_and_corrected_together():
    pairs = {name: [gained(gain)] for name, gain in (("a", 0.1), ("b", 0.08), ("c", 0.0))}
    tests = {name: n.tested(pair, RATE, NOISE) for name, pair in pairs.items()}
    corrected = holm([test[3] for test in tests.values()])
    for (name, found), p in zip(n.changes(pairs, RATE, NOISE).items(), corrected, strict=True):
        gain, error, freedom, _ = tests[name]
        reach = student_quantile(0.95, freedom) * error
        ratios = [math.exp(value) - 1 for value in (gain, gain - reach, gain + reach)]
        assert (found.change, found.low, found.high, found.p) == (*map(pytest.approx, ratios), p)
        assert [found.significant(level) for level in (p * 0.99, p, p * 1.01)] == [False, True, True]


def test_too_few_pairs_have_the_assumed_noise_and_no_noise_is_below_what_runs_agree_by():
    assumed = n.noise_of([gained(0.01), gained(-0.01)], RATE)
    assert (assumed.deviation, assumed.freedom, assumed.estimated) == (0.01, 30, False)
    assert n.noise_of([], RATE).deviation == 0.01
    calm = n.noise_of([gained(0.0, nodes=1 + at // 10) for at in range(300)], RATE)
    assert calm.deviation == 0.002


@pytest.mark.parametrize("cells", [[1 + at // 10 for at in range(100)], list(range(100))])
def test_the_noise_between_runs_is_what_is_left_of_the_spread_without_both_runs_iterations(cells):
    """In cells of ten runs, and where each cell has one, so that the cells themselves are the repeats."""
    gains = list(np.random.default_rng(5).normal(0, 0.15, 100))
    pairs = [gained(gain * math.sqrt(0.75), WIDE, at, repeats=2) for gain, at in zip(gains, cells, strict=True)]
    found = n.noise_of(pairs, RATE)  # one run against two: 3/4 of the variance of one against one
    groups = [[gain for gain, at in zip(gains, cells, strict=True) if at == cell] for cell in dict.fromkeys(cells)]
    spread, freedom = robust_spread(groups if len(groups) < 100 else [gains])
    one = log_median_variance(WIDE)[0]
    assert found.estimated
    assert found.deviation == pytest.approx(math.sqrt(spread**2 - (one + one / 2) / 0.75))
    assert found.freedom == pytest.approx(freedom)
    assert found.iterations == pytest.approx(math.sqrt((one + one / 2) / 2))


def test_what_all_runs_gained_is_no_noise_however_often_each_was_repeated():
    found = n.noise_of([gained(0.3, times=[1.0] * 5, nodes=at % 2, repeats=1 + at % 5) for at in range(40)], RATE)
    assert (found.estimated, found.deviation) == (True, n.MIN_NOISE)


@pytest.mark.parametrize("count", range(3, 12))
def test_the_noise_is_estimated_from_two_and_a_half_degrees_of_freedom_on(count):
    gains = [0.01 * at for at in range(count)]
    freedom = robust_spread([gains])[1]
    found = n.noise_of([gained(gain) for gain in gains], RATE)
    assert found.estimated == (freedom >= 2.5)
    assert found.freedom == pytest.approx(freedom if freedom >= 2.5 else 30)


def test_a_metric_that_iterations_do_not_show_has_no_error_by_them():
    gains = list(np.random.default_rng(5).normal(0, 0.15, 9))
    found = n.noise_of([gained(gain) for gain in gains], MEMORY)
    assert found.iterations == 0.0
    assert found.deviation == pytest.approx(robust_spread([gains])[0])


@pytest.mark.parametrize("noise", [0.0, 1.0, -0.1])
def test_a_noise_that_is_given_is_a_fraction_and_replaces_the_one_of_the_sweeps(noise):
    given = compare(noisy(1), noisy(2), noise=0.005).noise
    assert (given.deviation, given.freedom, given.estimated) == (0.005, 30, False)
    assert given.iterations == compare(noisy(1), noisy(2)).noise.iterations
    with pytest.raises(SweepError, match="is no noise"):
        compare(noisy(1), noisy(2), noise=noise)


def test_a_cell_of_one_shared_configuration_has_no_typical_change():
    one, two = (compare(noisy(1, per_cell=count), noisy(2, per_cell=count)).cells[0] for count in (1, 2))
    assert (one.pairs, one.typical) == (1, None)
    assert two.pairs == 2
    assert two.typical is not None


@pytest.mark.parametrize(
    ("runs", "p", "mark"), [(0, 0.05, " *"), (0, 0.06, ""), (1, 0.05, " not clear"), (1, 0.06, "")]
)
def test_a_change_is_marked_up_to_the_level_and_as_not_clear_where_a_host_was_oversubscribed(runs, p, mark):
    change = n.Change(change=-0.051, low=-0.06, high=-0.042, p=p, oversubscribed_runs=runs)
    assert change.text(0.05) == f"-5.1% (-6.0 to -4.2){mark}"
