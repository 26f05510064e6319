"""What is known of the runs that ended, whatever the order in which their ends arrive."""

import itertools

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.search.candidates import from_configurations
from sweep.search.observations import Known
from tests.support.configurations import run


def known():
    given = [{**run(dp=8, mbs=2**at, workload="somebody"), "nodes": nodes} for nodes in (1, 2) for at in range(4)]
    return Known(from_configurations([f"run-{i:016x}" for i in range(8)], given, GPUS["h100"]))


ENDS = [
    (0, Outcome.OK, 100.0, 6e10, 3.0), (1, Outcome.OK, 120.0, 7e10, 1.0), (2, Outcome.OOM_CUDA, None, None, 2.0),
    (4, Outcome.OK, 80.0, None, 4.0), (5, Outcome.UNKNOWN, None, None, 5.0),
]  # fmt: skip


def test_the_order_of_arrival_changes_nothing():
    states = []
    for ends in itertools.islice(itertools.permutations(ENDS), 0, None, 17):
        found = known()
        for index, outcome, rate, peak, when in ends:
            found.end(index, outcome, rate, peak, when)
        rows = np.arange(8)
        states.append(
            (
                found.best.tolist(),
                found.tries.tolist(),
                found.infeasible.tolist(),
                found.predicted(rows),
                found.success(rows),
            )
        )
    for best, tries, infeasible, predicted, success in states:
        assert best == pytest.approx(np.log([120.0, 80.0]).tolist())
        assert tries == [3, 2]
        assert infeasible == [False, False, True, True] * 2
        assert np.allclose(predicted, states[0][3])
        assert np.allclose(success, states[0][4])


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
    found = Known(from_configurations([f"run-{i:016x}" for i in range(8)], given, GPUS["h100"]))
    use, limit = found.candidates.memory_use, found.candidates.memory_limit_bytes
    for index in range(3):
        found.end(index, Outcome.OK, 100.0, 2 * use[index] * limit)
    assert found.infeasible[3]
    assert not found.infeasible[4:].any()


def test_peaks_that_were_not_predicted_correct_no_prediction():
    """A trainer without a profile needs little; another's runs of the same model stay as feasible as they were."""
    given = [run(mbs=mbs, dp=8, workload=name) for name in ("nanotron", "somebody") for mbs in (1, 2, 3, 4)]
    found = Known(from_configurations([f"run-{i:016x}" for i in range(8)], given, GPUS["h100"]))
    for index in range(4, 8):
        found.end(index, Outcome.OK, 100.0, 1e9)
    assert not found.infeasible.any()


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.HANG, Outcome.OOM_HOST])
def test_a_failures_rate_is_none(outcome):
    found = known()
    found.end(0, outcome, 500.0)
    assert np.isnan(found.log_rates[0])
    assert found.best[0] == -np.inf
    assert not found.infeasible.any()


def test_what_similar_runs_did_is_expected_of_a_run():
    found = known()
    before = found.success(np.arange(8))
    found.end(1, Outcome.HANG)
    after = found.success(np.arange(8))
    drop = before - after
    assert drop[1] == max(drop)
    assert drop[0] > drop[3] > 0, "the nearer the micro-batch, the more"
    assert drop[0] > drop[4], "another number of nodes is further away"
    for index in (0, 2):
        found.end(index, Outcome.OK, 100.0)
    assert found.success(np.array([1]))[0] > after[1]
