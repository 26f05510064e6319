"""Which outcome is retried, how often, and what is never."""

import itertools

import pytest

from sweep.outcomes import Outcome
from sweep.state.retries import ELSEWHERE, ENDLESS, OUTSIDE, RULES, attempt_that_counts, may_retry, supersedes
from tests.support.paths import REPOSITORY


def test_an_outcome_is_retried_as_often_as_its_rule_says_and_the_last_decides():
    for outcome, (times, *_) in RULES.items():
        assert [may_retry([outcome] * count) for count in range(1, 9)] == [count <= times for count in range(1, 9)]
    assert may_retry([Outcome.PREEMPTED] * 50 + [Outcome.LOST]), "an interruption does not count against the run"
    assert not may_retry([Outcome.PREEMPTED, Outcome.OOM_CUDA])
    assert may_retry([Outcome.OOM_CUDA, Outcome.PREEMPTED])


def test_each_outcome_is_retried_as_often_and_where_as_the_documentation_states():
    page = (REPOSITORY / "docs" / "faults.md").read_text()
    table = page.partition("## Retry")[2].strip().partition("\n\n")[0].splitlines()[2:]
    stated: dict[Outcome, int] = {}
    elsewhere: set[Outcome] = set()
    for outcomes, count, where in ([cell.strip() for cell in row.split("|")[1:4]] for row in table):
        named = [Outcome(name.strip()) for name in outcomes.split(",")]
        stated |= dict.fromkeys(named, {"none": 0, "unlimited": ENDLESS}[count] if count.isalpha() else int(count))
        elsewhere |= set(named) if where == "other nodes" else set()
    assert stated | {Outcome.OK: 0} == {outcome: rule.retries for outcome, rule in RULES.items()}
    assert elsewhere == ELSEWHERE
    assert set(RULES) == set(Outcome)
    again = page.partition("`sweep resume` for ")[2].partition(":")[0].replace(" and ", ",").replace("\n", "")
    assert {Outcome(name.strip()) for name in again.split(",")} == OUTSIDE


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
