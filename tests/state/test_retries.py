"""Which outcome is retried, how often, and what is never."""

from sweep.outcomes import Outcome
from sweep.state.retries import ELSEWHERE, ENDLESS, RETRIES, may_retry
from tests.support.paths import REPOSITORY


def test_every_outcome_has_a_retry_rule():
    assert set(RETRIES) == set(Outcome)


def test_an_outcome_is_retried_as_often_as_its_rule_says_and_the_last_decides():
    for outcome, times in RETRIES.items():
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
    assert stated | {Outcome.OK: 0} == RETRIES
    assert elsewhere == ELSEWHERE
