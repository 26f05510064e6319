"""The noise of a change and its test, by hand from few numbers."""

import math

import numpy as np
import pytest

from analysis.compare import compare
from analysis.compare import noise as n
from analysis.compare.comparison import Noise
from analysis.metrics import METRICS
from analysis.statistics import MEDIAN_FACTOR, log_median_variance, robust_spread, student_quantile, student_two_sided
from sweep.errors import SweepError
from tests.support.compared import noisy

RATE, TIME, MEMORY = (
    METRICS[name] for name in ("tokens_per_second_per_gpu", "step_time_median_s", "peak_memory_bytes")
)
TIMES = [1.0, 1.02, 0.99, 1.01, 1.05]


def row(value=100.0, repeats=1, times=TIMES, nodes=1):
    return {"value": value, "repeats": repeats, "step_times_s": times, "model": "8B", "nodes": nodes}


def test_a_gain_is_the_logarithm_of_the_better_over_the_worse():
    assert n.gain(row(100.0), row(110.0), RATE) == pytest.approx(math.log(1.1))
    assert n.gain(row(100.0), row(110.0), TIME) == pytest.approx(-math.log(1.1))


def test_the_parts_of_a_changes_variance_are_both_runs_iterations_and_the_noise_between_runs():
    variance, freedom = log_median_variance(TIMES)
    found = n.parts_of(row(repeats=2), row(repeats=4), RATE, Noise(deviation=0.03, freedom=7, estimated=True))
    assert found == [
        (pytest.approx(variance / 2), freedom * 2), (pytest.approx(variance / 4), freedom * 4),
        (pytest.approx(0.03**2 * (1 / 2 + 1 / 4) / 2), 7),
    ]  # fmt: skip
    usual = n.parts_of(
        row(times=[1.0] * 5), row(times=None), RATE, Noise(deviation=0.03, freedom=7, estimated=True, iterations=0.01)
    )
    assert [part for part, _ in usual[:2]] == [pytest.approx(1e-4)] * 2, "none is more precise than runs usually are"
    assert n.parts_of(row(), row(), MEMORY, Noise(deviation=0.03, freedom=7, estimated=True))[0] == (0.0, 0.0)


def test_a_test_adds_variances_and_their_degrees_of_freedom_as_welch_and_satterthwaite_do():
    parts = [(0.0004, 4.0), (0.0009, 9.0), (0.0001, 0.0)]
    gain, error, freedom, p = n.tested(0.1, parts)
    assert (gain, error) == (0.1, pytest.approx(math.sqrt(0.0014)))
    assert freedom == pytest.approx(0.0014**2 / (0.0004**2 / 4 + 0.0009**2 / 9))
    assert p == pytest.approx(student_two_sided(0.1 / error, freedom))
    assert n.tested(0.1, [(0.0004, 0.0)])[2] == 1e6, "without any estimate the normal distribution"


def test_a_change_is_shown_as_ratios_within_its_95_per_cent():
    found = n.change_of((0.1, 0.02, 9.0, 0.001), 0.004)
    reach = student_quantile(0.95, 9.0) * 0.02
    assert found.change == pytest.approx(math.exp(0.1) - 1)
    assert (found.low, found.high) == (
        pytest.approx(math.exp(0.1 - reach) - 1),
        pytest.approx(math.exp(0.1 + reach) - 1),
    )
    assert found.p == 0.004
    assert [found.significant(level) for level in (0.003, 0.004, 0.005)] == [False, True, True]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_typical_change_is_the_median_with_the_variance_of_a_median(count):
    noise = Noise(deviation=0.02, freedom=9, estimated=True)
    pairs = [(row(100.0), row(100.0 + 2 * at)) for at in range(count)]
    gain, error, _, _ = n.typical_change(pairs, RATE, noise)
    assert gain == pytest.approx(float(np.median([math.log(1 + 0.02 * at) for at in range(count)])))
    each = sum(part for part, _ in n.parts_of(*pairs[0], RATE, noise))
    factor = MEDIAN_FACTOR**2 if count > 2 else 1.0
    assert error**2 == pytest.approx(each * factor / count)


def test_too_few_pairs_have_the_assumed_noise_and_many_their_own():
    def found(gains, cells):
        pairs = [(row(nodes=at), row(nodes=at)) for at in cells]
        return n.noise_of(pairs, gains, RATE)

    assumed = found([0.01, -0.01], [1, 1])
    assert (assumed.deviation, assumed.freedom, assumed.estimated) == (0.01, 30, False)
    generator = np.random.default_rng(3)
    gains = generator.normal(0, 0.05, 300)
    variance = 2 * log_median_variance(TIMES)[0]
    own = found(gains, [1 + at // 10 for at in range(300)])
    assert own.estimated
    assert own.deviation == pytest.approx(math.sqrt(0.05**2 - variance), rel=0.15)
    assert own.iterations == pytest.approx(math.sqrt(variance / 2))
    apart = found(gains, list(range(300)))
    assert apart.estimated, "a run per cell: the cells themselves are the repeats"
    assert apart.deviation == pytest.approx(own.deviation, rel=0.15)
    calm = found(np.zeros(300), [1 + at // 10 for at in range(300)])
    assert calm.deviation == 0.002, "no two runs agree better than that"


@pytest.mark.parametrize(("noise", "right"), [(0.005, True), (0.0, False), (1.0, False), (-0.1, False)])
def test_a_noise_is_a_fraction(noise, right):
    if right:
        assert compare(noisy(1), noisy(2), noise=noise).cells
        return
    with pytest.raises(SweepError, match="is no noise"):
        compare(noisy(1), noisy(2), noise=noise)


def test_a_cell_of_one_shared_configuration_has_no_typical_change():
    one, two = (compare(noisy(1, per_cell=count), noisy(2, per_cell=count)).cells[0] for count in (1, 2))
    assert (one.pairs, one.typical) == (1, None)
    assert two.pairs == 2
    assert two.typical is not None


def test_values_below_one_are_compared_too():
    found = compare(noisy(1), noisy(2), metric="mfu")
    assert found.cells[0].value_a == pytest.approx(noisy(1)["mfu"].max(), rel=0.5)
    assert all(cell.value_a is not None for cell in found.cells)


def test_of_many_values_that_differ_three_are_named():
    mixed = noisy(1).assign(sequence_length=[1024 * (1 + place % 4) for place in range(len(noisy(1)))])
    with pytest.raises(SweepError) as raised:
        compare(mixed, noisy(2).assign(sequence_length=512))
    (fact,) = [one.fact for one in raised.value.mistakes if "sequence" in one.fact]
    assert "1024, 2048, 3072 in A, 512 in B" in fact


WIDE = [1.0, 1.2, 0.8, 1.1, 0.9]


@pytest.mark.parametrize("cells", [[1 + at // 10 for at in range(100)], list(range(100))])
def test_the_noise_between_runs_is_what_is_left_of_the_spread_without_both_runs_iterations(cells):
    gains = list(np.random.default_rng(5).normal(0, 0.15, 100))
    pairs = [(row(times=WIDE, nodes=at), row(times=WIDE, repeats=2, nodes=at)) for at in cells]
    found = n.noise_of(pairs, gains, RATE)
    groups = [[gain for gain, at in zip(gains, cells, strict=True) if at == cell] for cell in dict.fromkeys(cells)]
    spread, freedom = robust_spread(groups if len(groups) < 100 else [gains])
    one = log_median_variance(WIDE)[0]
    assert found.deviation == pytest.approx(math.sqrt(spread**2 - one - one / 2))
    assert found.freedom == freedom
    assert found.iterations == pytest.approx(math.sqrt((one + one / 2) / 2))


@pytest.mark.parametrize("count", range(3, 12))
def test_the_noise_is_estimated_from_two_and_a_half_degrees_of_freedom_on(count):
    gains = [0.01 * at for at in range(count)]
    freedom = robust_spread([gains])[1]
    found = n.noise_of([(row(), row())] * count, gains, RATE)
    assert found.estimated == (freedom >= 2.5)
    assert found.freedom == (freedom if freedom >= 2.5 else 30)


def test_a_metric_that_iterations_do_not_show_has_no_error_by_them():
    found = n.noise_of([(row(), row())] * 9, [0.0] * 9, MEMORY)
    assert found.iterations == 0.0
    gains = list(np.random.default_rng(5).normal(0, 0.15, 9))
    spread, _ = robust_spread([gains])
    assert n.noise_of([(row(), row())] * 9, gains, MEMORY).deviation == pytest.approx(spread)


@pytest.mark.parametrize("times", [None, math.nan])
def test_a_row_without_iterations_has_no_variance_by_them(times):
    noise = Noise(deviation=0.03, freedom=7, estimated=True)
    assert n.parts_of(row(times=times), row(times=times), RATE, noise)[:2] == [(0.0, 0.0)] * 2


def test_a_change_without_any_variance_is_not_tested():
    assert n.tested(0.1, [(0.0, 3.0)]) == (0.1, 0.0, 1e6, 1.0)


def test_the_typical_change_has_the_freedom_of_all_iterations_and_of_the_shared_noise_once():
    noise = Noise(deviation=0.02, freedom=9, estimated=True)
    pairs = [(row(100.0), row(100.0 + 2 * at)) for at in range(2)]
    variance, own = log_median_variance(TIMES)
    parts = [(variance / 4, own)] * 4 + [(2 * 0.02**2 / 4, 9)]
    expected = sum(part for part, _ in parts) ** 2 / sum(part**2 / freedom for part, freedom in parts)
    assert n.typical_change(pairs, RATE, noise)[2] == pytest.approx(expected)


def test_a_noise_that_is_given_replaces_the_one_of_the_sweeps():
    noise = compare(noisy(1), noisy(2), noise=0.005).noise
    assert (noise.deviation, noise.freedom, noise.estimated) == (0.005, 30, False)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 1.5])
def test_a_level_lies_between_0_and_1(level):
    with pytest.raises(SweepError, match="is no level"):
        compare(noisy(1), noisy(2), level=level)
    assert compare(noisy(1), noisy(2), level=0.999).level == 0.999
