"""Ends that logs show have their outcomes, healthy logs none: the corpus in messages.yaml, which states its sources."""

from pathlib import Path

import pytest
import yaml

from sweep.diagnose.diagnose import diagnose_text
from sweep.diagnose.scan import RULES, scan
from sweep.outcomes import NO_FAILURE

CORPUS = yaml.safe_load((Path(__file__).parent / "messages.yaml").read_text())
HEALTHY = CORPUS.pop("healthy")
ENDS = [
    pytest.param(part, end["outcome"], end["log"], id=f"{part}-{number}-{end.get('source', end['outcome'])}")
    for part, ends in CORPUS.items()
    for number, end in enumerate(ends)
]


@pytest.mark.parametrize(("part", "outcome", "log"), ENDS)
def test_an_end_has_its_outcome(part: str, outcome: str, log: str) -> None:
    found = diagnose_text(log)
    assert str(found.outcome or NO_FAILURE) in outcome.split("|"), found
    if part in ("messages", "launches", "later"):
        assert found.advice
        assert found.evidence


@pytest.mark.parametrize("log", HEALTHY, ids=range(len(HEALTHY)))
def test_a_healthy_log_is_no_failure(log: str) -> None:
    assert diagnose_text(log).outcome is None, diagnose_text(log)


def test_every_rule_is_used() -> None:
    logs = [*(end["log"] for ends in CORPUS.values() for end in ends), *HEALTHY]
    assert {rule.name for rule in RULES} - {hit.source for log in logs for hit in scan(log)} == set()


def test_a_memory_limit_that_was_met_at_some_point_is_the_end_where_nothing_better_is_known() -> None:
    met = "slurmstepd: error: Exceeded step memory limit at some point.\n"
    assert str(diagnose_text(met).outcome) == "oom_host"
    missing = "ModuleNotFoundError: No module named 'x'\n"
    assert str(diagnose_text(missing + met).outcome) == "import_error"
