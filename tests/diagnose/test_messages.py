"""Messages collected from public sources, written down before the rules were tuned: a check of their generality.

Each row: the outcomes that are right, where such a message is found, and the message (facts, few lines).
"""

from __future__ import annotations

import pytest

from sweep.diagnose.diagnose import diagnose_text
from sweep.outcomes import NO_FAILURE
from tests.support.log_messages import HEALTHY, MESSAGES


@pytest.mark.parametrize(("right", "source", "text"), MESSAGES, ids=[f"{i}-{row[0]}" for i, row in enumerate(MESSAGES)])
def test_message_is_named_rightly(right: str, source: str, text: str) -> None:
    found = diagnose_text(text)
    assert str(found.outcome or NO_FAILURE) in right.split("|"), (source, found)
    assert found.evidence
    assert found.advice


@pytest.mark.parametrize("text", HEALTHY, ids=range(len(HEALTHY)))
def test_healthy_log_is_no_failure(text: str) -> None:
    found = diagnose_text(text)
    assert found.outcome is None, found


def test_collection_is_large_and_spread() -> None:
    assert len(MESSAGES) >= 40
    assert len({row[0].split("|")[0] for row in MESSAGES}) >= 15
