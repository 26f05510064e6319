"""Which record of an attempt counts, and which attempt of a run."""

import itertools

import pytest

from sweep.outcomes import Outcome
from sweep.state.counting import attempt_that_counts, supersedes

OK, HANG, OOM, LOST = Outcome.OK, Outcome.HANG, Outcome.OOM_CUDA, Outcome.LOST


@pytest.mark.parametrize("outcome", Outcome)
def test_the_first_record_of_an_attempt_counts_whatever_its_outcome(outcome):
    assert supersedes(outcome, None)


@pytest.mark.parametrize("own", [outcome for outcome in Outcome if outcome is not LOST])
def test_the_pilots_own_record_replaces_lost_however_late(own):
    assert supersedes(own, LOST)


@pytest.mark.parametrize("known", Outcome)
def test_lost_replaces_no_record(known):
    assert not supersedes(LOST, known)


@pytest.mark.parametrize("known", [OK, HANG])
def test_of_two_own_records_the_later_counts(known):
    assert supersedes(HANG, known)
    assert supersedes(OK, known)


def test_a_run_without_attempts_has_no_result():
    assert attempt_that_counts([], 0) is None
    assert attempt_that_counts([], 1) is None


def test_the_first_ok_attempt_counts_and_a_later_ok_one_is_surplus():
    assert attempt_that_counts([(1, HANG), (2, OK), (3, OK), (4, OOM)], 0) == 2


def test_without_an_ok_attempt_the_last_counts():
    assert attempt_that_counts([(1, OOM), (2, LOST), (3, HANG)], 0) == 3


def test_without_an_ok_attempt_the_last_counts_also_while_it_runs():
    assert attempt_that_counts([(1, HANG), (2, None)], 0) == 2


def test_an_ok_attempt_counts_while_a_later_one_runs():
    assert attempt_that_counts([(1, OK), (2, None)], 0) == 1


def test_after_a_rerun_the_first_ok_attempt_since_counts():
    assert attempt_that_counts([(1, OK), (2, HANG), (3, OK), (4, OK)], 1) == 3


@pytest.mark.parametrize("since", [[], [(2, None)], [(2, HANG)], [(2, LOST), (3, OOM)]])
def test_until_the_rerun_has_an_ok_attempt_the_ok_one_before_it_counts(since):
    assert attempt_that_counts([(1, OK), *since], 1) == 1


def test_a_rerun_of_a_run_that_never_was_ok_counts_once_it_is_ok_and_until_then_the_last_does():
    assert attempt_that_counts([(1, OOM)], 1) == 1
    assert attempt_that_counts([(1, OOM), (2, HANG)], 1) == 2
    assert attempt_that_counts([(1, OOM), (2, OK), (3, HANG)], 1) == 2


def test_an_attempt_that_had_begun_when_the_rerun_was_requested_does_not_answer_it():
    assert attempt_that_counts([(1, OK), (2, OK), (3, HANG)], 2) == 1
    assert attempt_that_counts([(1, OK), (2, OK), (3, OK)], 2) == 3


def test_the_numbers_decide_and_not_the_order_in_which_attempts_are_given():
    for attempts in itertools.permutations([(1, HANG), (2, OK), (10, OK), (11, OOM)]):
        assert attempt_that_counts(attempts, 0) == 2
        assert attempt_that_counts(iter(attempts), 2) == 10
