"""Which record of an attempt counts, and which attempt of a run."""

import itertools

import pytest

from sweep.outcomes import Outcome
from sweep.state.retries import attempt_that_counts, supersedes

OK, HANG, OOM, LOST = Outcome.OK, Outcome.HANG, Outcome.OOM_CUDA, Outcome.LOST


@pytest.mark.parametrize(("new", "known", "replaces"), [
    (LOST, None, True), (OK, None, True), (HANG, LOST, True), (HANG, OK, True), (OK, HANG, True),
    (LOST, LOST, False), (LOST, OK, False),
])  # fmt: skip
def test_the_first_record_counts_and_then_the_latest_that_a_pilot_wrote_itself(new, known, replaces):
    assert supersedes(new, known) is replaces


@pytest.mark.parametrize(("attempts", "rerun_after", "counts"), [
    ([], 0, None), ([], 1, None),
    ([(1, HANG), (2, OK), (3, OK), (4, OOM)], 0, 2),  # the first that is ok
    ([(1, OOM), (2, LOST), (3, HANG)], 0, 3), ([(1, HANG), (2, None)], 0, 2),  # else the last, also while it runs
    ([(1, OK), (2, None)], 0, 1),
    ([(1, OK), (2, HANG), (3, OK), (4, OK)], 1, 3),  # after a rerun the first ok one since, once there is one
    ([(1, OK)], 1, 1), ([(1, OK), (2, None)], 1, 1), ([(1, OK), (2, LOST), (3, OOM)], 1, 1),
    ([(1, OOM)], 1, 1), ([(1, OOM), (2, HANG)], 1, 2), ([(1, OOM), (2, OK), (3, HANG)], 1, 2),
    ([(1, OK), (2, OK), (3, HANG)], 2, 1), ([(1, OK), (2, OK), (3, OK)], 2, 3),  # one that had begun is no answer
])  # fmt: skip
def test_the_attempt_that_is_a_runs_result(attempts, rerun_after, counts):
    assert attempt_that_counts(attempts, rerun_after) == counts


def test_the_numbers_decide_and_not_the_order_in_which_attempts_are_given():
    for attempts in itertools.permutations([(1, HANG), (2, OK), (10, OK), (11, OOM)]):
        assert attempt_that_counts(attempts, 0) == 2
        assert attempt_that_counts(iter(attempts), 2) == 10
