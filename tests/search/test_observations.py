"""What is known of the runs that ended; the order of their arrival: tests.support.conforming_strategies."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from sweep.outcomes import Outcome
from sweep.search.memory_model import KNOWN_TRAINER, Peaks
from sweep.search.observations import InOrder
from sweep.search.step_time_model import disturbance_variance
from tests.support.configurations import made_known, run


def known():
    given = [{**run(dp=8, mbs=2**at, workload="somebody"), "nodes": nodes} for nodes in (1, 2) for at in range(4)]
    return made_known(given)


def test_an_out_of_memory_rules_out_what_needs_as_much_until_it_is_taken_back():
    """On any number of nodes: a rank's needs follow from the layout."""
    found = known()
    found.end(1, Outcome.OOM_CUDA)
    assert found.ruled_out.tolist() == [False, True, True, True] * 2
    found.end(0, Outcome.OOM_CUDA)
    assert found.ruled_out.tolist() == [True] * 8
    found.reopen(0)
    assert found.ruled_out.tolist() == [False, True, True, True] * 2
    found.reopen(1)
    assert not found.ruled_out.any()
    found.reopen(1)


def test_a_result_that_is_measured_again_no_longer_counts():
    found = known()
    for index, rate in ((0, 100.0), (1, 130.0)):
        found.end(index, Outcome.OK, rate)
    found.reopen(1)
    assert found.best[0] == pytest.approx(np.log(100.0))
    assert np.isnan(found.log_rates[1])
    assert found.begun[1], "it is still one of those that began"
    assert found.tries.tolist() == [2, 0]
    found.end(1, Outcome.OK, 90.0)
    assert found.best[0] == pytest.approx(np.log(100.0))
    found.end(1, Outcome.OK, 150.0)
    assert found.best[0] == pytest.approx(np.log(150.0))
    assert found.tries.tolist() == [2, 0]
    found.reopen(0)
    found.reopen(1)
    assert found.best[0] == -np.inf


@pytest.mark.filterwarnings("error")
def test_measured_peaks_change_nothing_for_a_run_whose_memory_cannot_be_predicted():
    """The peaks of a trainer with a profile, twice the predicted ones; another trainer's run of the same layout."""
    given = [run(mbs=mbs, dp=8, workload=name) for name in ("nanotron", "somebody") for mbs in (1, 2, 3, 32)]
    found = made_known(given)
    use, limit = found.candidates.memory_use, found.candidates.memory_limit_bytes
    for index in range(3):
        found.end(index, Outcome.OK, 100.0, 2 * use[index] * limit)
    assert found.infeasible[3]
    assert not found.infeasible[4:].any()


@pytest.mark.parametrize(("first", "factors", "read"), [
    (0, (2.0, 2.2, 2.4), 3), (0, (2.0, 2.2, 2.4, 2.2, 9.0), 4), (16, (1.9, 1.8, 1.9, 2.0, 1.9, 1.8), 6),
])  # fmt: skip
def test_measured_peaks_correct_their_models_predictions_and_rule_out_what_is_surely_over(first, factors, read):
    """By their mean error, with three of none, less two spreads of them. Above the memory, the largest is the limit."""
    sizes = [(model, mbs) for model in ("1B", "8B") for mbs in range(1, 120)]
    given = [run(dp=8, workload="nanotron", model=model, mbs=mbs) | {"sequence_length": 256} for model, mbs in sizes]
    found = made_known(given)
    c, use = found.candidates, found.candidates.memory_use
    peaks = use[first : first + len(factors)] * factors
    found.end(len(given) - 1, Outcome.OK, 100.0)  # without a peak
    for place, peak in enumerate(peaks):
        found.end(first + place, Outcome.OK, 100.0, peak * c.memory_limit_bytes)
    errors = np.log(factors[:read])
    spread = math.sqrt((np.square(errors - errors.mean()).sum() + 3 * KNOWN_TRAINER**2) / (read + 3))
    needs = np.log(use) + errors.sum() / (read + 3) - 2 * spread
    over = (needs > max(0, np.log(peaks[:read]).max())) & (c.models == 0)
    assert (over & ~c.impossible).sum() > 5
    assert (found.infeasible == (over | c.impossible)).all()


def test_measured_peaks_far_below_the_memory_rule_out_nothing_that_fits_it():
    """They are as predicted: a run that needs more than any of them and less than the memory stays."""
    given = [run(mbs=mbs, dp=8, tp=2, workload="nanotron") for mbs in (1, 2, 3, 4, 6, 8)]
    found = made_known(given)
    use, limit = found.candidates.memory_use, found.candidates.memory_limit_bytes
    assert 1.3 * use[2] < use[5] < 1.0
    for index in range(3):
        found.end(index, Outcome.OK, 100.0, use[index] * limit)
    assert not found.infeasible.any()


@pytest.mark.parametrize(
    ("outcome", "rate"),
    [(Outcome.UNKNOWN, 500.0), (Outcome.HANG, 500.0), (Outcome.OOM_HOST, 500.0), (Outcome.OK, np.inf), (Outcome.OK, 0),
     (Outcome.OK, None)],
)  # fmt: skip
def test_a_failures_rate_an_infinite_one_and_0_are_none(outcome, rate):
    found = known()
    found.end(0, outcome, rate, rate)
    assert np.isnan(found.log_rates[0])
    assert found.best[0] == -np.inf
    assert not found.infeasible.any()
    assert np.isfinite(found.posterior().success(np.arange(8))).all()
    found.end(0, Outcome.OK, 0.5)
    assert found.log_rates[0] == np.log(0.5)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, 3)), max_size=20))
def test_runs_are_in_the_order_of_their_ends_and_a_reader_learns_what_changed_before_its_place(steps):
    """Against a sorted list, read as a whole after every step."""
    order, plain = InOrder(), []
    for added, at, index in steps:
        before, item = list(plain), (float(at), index)
        if added and item not in plain:
            order.add(*item)
            plain = sorted([*plain, item])
        elif not added:
            order.drop(*item)
            plain = [other for other in plain if other != item]
        assert (len(order), order.latest) == (len(plain), plain[-1][0] if plain else 0.0)
        for place in range(1, len(before) + 1):
            assert order.changed_before(place) == (plain[:place] != before[:place])
        for place in range(1, len(plain) + 1):
            assert order.first(place).tolist() == [other for _, other in plain[:place]]
        assert not order.changed_before(len(plain))


def test_the_chance_of_a_failure_is_that_of_similar_runs_and_of_the_whole_sweep():
    """A kind without a model: a tenth of runs fails before anything is known, as fifty runs' worth of experience."""
    given = [{**run(mbs=2**at), "shape": {}} for at in range(6)]
    found = made_known(given, [(0, 100.0), (1, None), (3, None)])
    base = (50 * 0.1 + 2) / (50 + 3)
    for row in range(6):
        near = {one: np.exp(-((row - one) ** 2) / (2 * 2.0**2)) for one in (0, 1, 3)}
        fails = (2 * base + near[1] + near[3]) / (2 + sum(near.values()))
        assert found.posterior().success(np.array([row]))[0] == pytest.approx(1 - fails)


def test_an_out_of_memory_is_no_failure_of_another_kind_and_an_unknown_end_is_partly_one():
    """The smallest micro-batch on the most nodes, which is far below the memory of the run that failed."""
    lost = {}
    for outcome in (Outcome.OOM_CUDA, Outcome.UNKNOWN, Outcome.HANG):
        found = known()
        before = found.posterior().success(np.array([4]))[0]
        found.end(0, outcome)
        lost[outcome] = (found.posterior().success(np.array([0]))[0], found.posterior()._others(np.array([0]))[0])
        assert before > 0.8
    alone = known().posterior()._others(np.array([0]))[0]
    assert lost[Outcome.OOM_CUDA][1] == pytest.approx(alone), "it was of memory"
    assert lost[Outcome.HANG][1] == pytest.approx((2 * (50 * 0.1 + 1) / 51 + 1) / 3)
    assert alone < lost[Outcome.UNKNOWN][1] <= lost[Outcome.HANG][1]
    assert lost[Outcome.OOM_CUDA][0] < 0.5


def test_an_out_of_memory_is_certain_to_be_one_and_an_unknown_end_as_likely_as_others_are_not():
    rows = np.arange(8)
    for outcome in (Outcome.OOM_CUDA, Outcome.UNKNOWN):
        found = known()
        share = 0.0 if outcome is Outcome.OOM_CUDA else float(found.posterior()._others(np.array([1]))[0])
        alone = Peaks(found.candidates.peaks, found.candidates.kernel)
        alone.failed(1, share)
        found.end(1, outcome)
        assert found.posterior()._peaks.fits(rows) == pytest.approx(alone.fits(rows))


@pytest.mark.parametrize("slower", [-0.2, 0.05, 0.3])
def test_between_refits_a_measurement_counts_by_how_far_it_is_trusted(slower):
    """The fifth is not worth a refit: it moves the mean by its share of the variance, less if it may be disturbed."""
    found, row = known(), np.array([5])
    for place in range(4):
        found.end(place, Outcome.OK, 100.0 + 10 * place)
    posterior = found.posterior()
    mean, variance = float(posterior.log_rates(row)[0]), float(posterior.spreads(row)[0]) ** 2
    noise, disturbed = posterior.fit.scales.noise**2, posterior.fit.disturbed
    extra = disturbance_variance(np.array([slower]), np.array([variance + noise]), disturbed)[0]
    found.end(5, Outcome.OK, float(np.exp(mean - slower)))
    moved = mean - slower * variance / (variance + noise + extra)
    assert found.posterior().log_rates(row)[0] == pytest.approx(moved, abs=1e-9)


def fitted_at(given, rates):
    """(after which ends the times were fitted, the noise by the last fit)."""
    found = made_known(given)
    fits, at_end = [found.posterior().fit], []
    for place, rate in enumerate(rates):
        found.end(place, Outcome.OK, rate)
        fit = found.posterior().fit
        if fit is not fits[-1]:
            fits.append(fit)
            at_end.append(place + 1)
    return at_end, fits[-1].scales.noise


DIFFERENT = [run(dp=8 // tp, tp=tp, mbs=mbs, workload="somebody") for tp in (1, 2, 4) for mbs in (1, 2, 4, 8)]


def test_times_are_fitted_again_whenever_a_quarter_more_of_them_are_known():
    """int(1.25 n) + 1: each of the first four, then the sixth, eighth and eleventh."""
    assert fitted_at(DIFFERENT, [100.0 + place for place in range(12)])[0] == [1, 2, 3, 4, 6, 8, 11]


def test_repeats_count_by_themselves_so_that_the_noise_which_they_show_is_learned_at_once():
    again = [run(dp=8, mbs=mbs, repeat=1, workload="somebody") for mbs in (1, 2, 4, 8)]
    rates = [100.0 + place for place in range(8)]
    differ = [rate * off for rate, off in zip(rates, (1.06, 0.95, 1.05, 0.94), strict=False)]
    at_end, noise = fitted_at(DIFFERENT[:8] + again, rates + differ)
    assert at_end == [1, 2, 3, 4, 6, 8, 9, 10, 11, 12]
    steady = fitted_at(DIFFERENT[:8] + again, rates + rates[:4])[1]
    assert steady < 0.02 < 0.025 < noise


def test_posterior_compute_with_one_thread():
    """A leader shares its node with the ranks that it measures."""
    known().posterior()
    threads = {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    assert threads <= {1}
