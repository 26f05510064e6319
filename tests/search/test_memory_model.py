"""The posterior of peaks: what is predicted, what a measured peak or an end teaches, of the run and its neighbours."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.physics import memory
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES
from sweep.search.memory_model import (
    GROUPS,
    LIKE_RUNS,
    PEAK_NOISE,
    RESIDUAL,
    STATED,
    STATED_ERROR,
    Peaks,
    predicted_peaks,
)
from tests.support.configurations import made_candidates, made_known, run

H100 = GPUS["h100"]
LIMIT = memory.usable_bytes(H100)


def candidates(workload="megatron"):
    given = [run(dp=8, mbs=mbs, zero=zero, workload=workload, model="8B") for mbs in (1, 2, 4) for zero in (0, 1)]
    return made_candidates(given)


@pytest.mark.parametrize(("pp", "mbs", "recompute", "heavy"), [
    (1, 1, "none", 0), (2, 1, "none", 0), (4, 1, "none", 0), (4, 16, "full", 1),
])  # fmt: skip
def test_the_predicted_peak_is_that_of_the_heavier_end_of_the_pipeline_by_kinds(pp, mbs, recompute, heavy):
    """The first stage has most micro-batches in flight, the last one the logits."""
    one = run(dp=8, pp=pp, model="8B", mbs=mbs, recompute=recompute)
    found = made_candidates([one])
    columns = dict(found.columns)
    log_use, shares = predicted_peaks(columns, PROFILES["megatron"], LIMIT)
    ends = [memory.breakdown(columns, PROFILES["megatron"], stage) for stage in ("first", "last")[: 1 + (pp > 1)]]
    heavier = max(ends, key=lambda part: float(part["total"][0]))
    assert heavier is ends[heavy]
    assert log_use[0] == pytest.approx(math.log(heavier["total"][0] / LIMIT))
    for group, share in zip(GROUPS, shares[0], strict=True):
        held = sum(float(np.broadcast_to(heavier[kind], 1)[0]) for kind in group)
        assert share == pytest.approx(held / heavier["total"][0])
    assert {kind for group in GROUPS for kind in group} == set(heavier) - {"total"}


def test_a_measured_peak_is_believed_and_moves_its_neighbours_as_their_covariance_states():
    found = candidates("somebody")
    peaks = Peaks(found.peaks, found.kernel)
    linear = found.peaks.shares * found.peaks.spreads[:, None]
    residual = np.array([RESIDUAL, RESIDUAL / 2, RESIDUAL / 2]) ** 2
    prior = linear @ linear[0] + residual @ found.kernel.columns(np.arange(1), np.arange(len(found)))[:, 0]
    assert peaks.spread(0) == pytest.approx(math.sqrt(prior[0]))
    moved = 0.3
    wanted = found.peaks.log_use + prior / (prior[0] + PEAK_NOISE**2) * moved
    peaks.measured(0, float(found.peaks.log_use[0]) + moved)
    assert peaks.spread(0) < 0.02
    assert peaks._posterior.mean == pytest.approx(wanted)


@pytest.mark.parametrize("off", [0.0, 1.0])
def test_predictions_are_as_uncertain_as_those_of_this_sweep_were_wrong(off):
    """And no more certain than the prior states; a repeat says nothing of it."""
    found = candidates()
    peaks, squares = Peaks(found.peaks, found.kernel), LIKE_RUNS
    for place, sign in enumerate((1, -1, 1, -1, -1)):
        predicted, spread = peaks._peak(place)[0], peaks.spread(place)
        squares += off**2 / (spread**2 + PEAK_NOISE**2)
        for _ in range(2):
            peaks.measured(place, predicted + sign * off)
    factor = max(squares / (LIKE_RUNS + 5), 1)
    assert (factor > 1) == (off > 0)
    assert peaks._peak(5)[1] == pytest.approx(factor * peaks.spread(5) ** 2)


def test_a_variance_that_rounding_made_negative_is_none():
    found = candidates()
    peaks = Peaks(found.peaks, found.kernel)
    peaks._posterior.variance[0] = -1e-12
    assert peaks.spread(0) == peaks._peak(0)[1] == 0.0
    assert np.isfinite(peaks.fits(np.arange(6))).all()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_failure_was_of_memory_by_bayes_rule(share):
    found = candidates("somebody")
    peaks = Peaks(found.peaks, found.kernel)
    over = 1 - float(peaks.fits(np.array([3]))[0])
    assert 0.01 < over < 0.99
    assert peaks.failed(3, share) == pytest.approx(over / (over + share * (1 - over)))


def test_a_measured_peak_teaches_only_while_the_runs_own_is_less_certain_than_an_axis_effect():
    """A run whose peak is as uncertain as the effect of one axis value: its further peaks are not learned."""
    found = candidates()
    peaks = Peaks(found.peaks, found.kernel)
    for spread, learns in ((RESIDUAL * 1.01, True), (RESIDUAL * 0.99, False)):
        peaks._posterior.variance[0] = spread**2
        before = peaks._posterior.mean.copy()
        peaks.measured(0, float(before[0]) + 0.2)
        assert (not np.array_equal(peaks._posterior.mean, before)) == learns


@pytest.mark.parametrize(("share", "fitted"), [(0.0, True), (0.0, False), (0.3, False)])
def test_an_end_without_a_measured_peak_moves_it_as_a_truncated_normal_does(share, fitted):
    """Peak and limit are both uncertain: given that one is above the other, the peak's mean moves by its part of the
    sum's variance, times density over probability at the distance (Rasmussen and Williams 2006, eq. 3.85)."""
    found = candidates("somebody")
    peaks = Peaks(found.peaks, found.kernel)
    row = 5
    mean, variance = float(peaks._posterior.mean[row]), float(peaks._posterior.variance[row])
    limit, error = peaks._limit, peaks._limit_variance
    spread = math.sqrt(variance + error)
    z = (limit - mean if fitted else mean - limit) / spread
    normal = NormalDist()
    slope = (1 - share) * normal.pdf(z) / (share + (1 - share) * normal.cdf(z))
    _ = peaks.fitted(row) if fitted else peaks.failed(row, share)
    moved = variance / spread * slope * (-1 if fitted else 1)
    assert float(peaks._posterior.mean[row]) == pytest.approx(mean + moved, abs=1e-5)


def test_the_limit_moves_by_its_part_of_what_an_end_says():
    """The rest is the peak's: both are uncertain, and only their difference was observed."""
    found = candidates("somebody")
    peaks = Peaks(found.peaks, found.kernel)
    mean, variance = float(peaks._posterior.mean[5]), float(peaks._posterior.variance[5])
    peaks.fitted(5)
    moved = mean - float(peaks._posterior.mean[5])
    assert peaks._limit - STATED == pytest.approx(moved * STATED_ERROR**2 / variance)
    assert 0 < peaks._limit_variance < STATED_ERROR**2


@pytest.mark.parametrize("peak", [-0.1, STATED, 0.0, STATED + 0.12])
def test_a_measured_peak_moves_the_limit_as_a_truncated_normal_does(peak):
    """A run worked with it: the limit is above, but for the error of measuring. None of these refutes it."""
    found = candidates()
    peaks, spread = Peaks(found.peaks, found.kernel), math.hypot(STATED_ERROR, PEAK_NOISE)
    peaks.measured(0, peak)
    slope = NormalDist().pdf((STATED - peak) / spread) / NormalDist().cdf((STATED - peak) / spread)
    assert peaks._limit - STATED == pytest.approx(STATED_ERROR**2 / spread * slope, abs=1e-4)


def test_the_stated_memory_counts_until_a_measured_peak_refutes_it():
    found = candidates()
    peaks = Peaks(found.peaks, found.kernel)
    peaks.measured(0, math.log(0.9))
    assert peaks._limit == pytest.approx(STATED, abs=0.03)
    for share in (1.2, 4.0):
        peaks.measured(1, math.log(share))
        assert math.log(share) < peaks._limit < math.log(share) + 0.6


@pytest.mark.parametrize("workload", ["somebody", "nanotron"])
def test_a_run_that_worked_above_the_stated_memory_keeps_others_possible(workload):
    """Four times the predicted peaks, twice the stated memory, and all work: the next larger one may too."""
    given = [run(mbs=mbs, zero=1, dp=8, gas=64 // mbs, workload=workload) for mbs in (1, 2, 4, 8)]
    known = made_known(given)
    for place, share in enumerate((0.9, 1.3, 2.0)):
        known.end(place, Outcome.OK, 1000.0 * (place + 1), share * 85e9)
    assert not known.infeasible[3] or known.candidates.impossible[3]
    assert known.posterior().success(np.array([3]))[0] > 0.05
