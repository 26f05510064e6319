"""Which outcome is retried, how often, and what is never."""

import pytest

from sweep.outcomes import Outcome
from sweep.state.retries import ELSEWHERE, ENDLESS, RETRIES, may_retry
from tests.support.paths import REPOSITORY


def test_every_outcome_has_a_retry_rule():
    assert set(RETRIES) == set(Outcome)


@pytest.mark.parametrize(
    "outcome",
    [
        *(Outcome.NODE_FAIL, Outcome.PREEMPTED, Outcome.PORT_IN_USE, Outcome.XID_HARDWARE, Outcome.NCCL_TIMEOUT),
        *(Outcome.NCCL_ERROR, Outcome.LOST, Outcome.HANG, Outcome.CANCELLED),
    ],
)
def test_what_the_cluster_causes_is_retried_within_bounds(outcome):
    assert may_retry([outcome])
    if RETRIES[outcome] < ENDLESS:
        assert may_retry([outcome] * RETRIES[outcome])
        assert not may_retry([outcome] * (RETRIES[outcome] + 1))


def test_an_interruption_does_not_count_against_the_run():
    assert may_retry([Outcome.PREEMPTED] * 50 + [Outcome.LOST])


def test_each_outcome_is_retried_as_often_and_where_as_the_documentation_states():
    page = (REPOSITORY / "docs" / "faults.md").read_text()
    table = page.partition("## Retry")[2].strip().partition("\n\n")[0].splitlines()[2:]
    stated: dict[Outcome, int] = {}
    elsewhere: set[Outcome] = set()
    for outcomes, count, where in ([cell.strip() for cell in row.split("|")[1:4]] for row in table):
        named = [Outcome(name.strip()) for name in outcomes.split(",")]
        stated |= dict.fromkeys(named, {"none": 0, "unlimited": ENDLESS}[count] if count.isalpha() else int(count))
        elsewhere |= set(named) if where == "other nodes" else set()
    assert stated | {Outcome.OK: 0} == RETRIES
    assert elsewhere == ELSEWHERE


def test_the_last_outcome_decides():
    assert not may_retry([Outcome.PREEMPTED, Outcome.OOM_CUDA])
    assert may_retry([Outcome.OOM_CUDA, Outcome.PREEMPTED])
