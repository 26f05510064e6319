"""One preloaded fork server for all tests of this folder, and the truth table that they write.

With SWEEP_TRUTH_TABLE=FILE the table is written there: each layout, how far it is from one process, how long it took;
and what torch cannot do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ranks.harness import ForkServer
from tests.support.transformer.truths import Truths, page


@pytest.fixture(scope="session")
def truths() -> Iterator[Truths]:
    """Collected by the tests, written at the end on request."""
    found = Truths()
    yield found
    if target := os.environ.get("SWEEP_TRUTH_TABLE"):
        Path(target).write_text(page(found))


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    pytest.importorskip("torch", reason="needs torch")
    fork_server = ForkServer("transformer", "simulated")
    yield fork_server
    fork_server.close()
