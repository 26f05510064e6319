"""Ends and healthy logs whose outcome was written down before it was tried."""

from __future__ import annotations

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.outcomes import NO_FAILURE
from tests.support import issues_later, issues_of_launch

ENDS = [*issues_of_launch.ENDS, *issues_later.ENDS]


@pytest.mark.parametrize(("right", "text"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_an_end_that_was_reported_in_public_has_its_outcome(right: str, text: str) -> None:
    found = diagnose_text(text)
    assert str(found.outcome or NO_FAILURE) in right.split("|"), found
    assert found.advice


@pytest.mark.parametrize("text", issues_later.HEALTHY.values(), ids=issues_later.HEALTHY)
def test_a_healthy_log_is_no_failure(text: str) -> None:
    found = diagnose_text(text)
    assert found.outcome is None, found
