"""One preloaded fork server for all tests of this folder, and the truth table that they write.

With SWEEP_TRUTH_TABLE=FILE a table is written there: each layout, how far it is from one process, how long it took; and
next to it `parallel_refused.csv`: what torch cannot do.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ranks.harness import ForkServer
from tests.support.transformer.truths import Truths


@pytest.fixture(scope="session")
def truths() -> Iterator[Truths]:
    """Collected by the tests, written at the end on request."""
    found = Truths()
    yield found
    if target := os.environ.get("SWEEP_TRUTH_TABLE"):
        found.write(Path(target))


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    pytest.importorskip("torch", reason="needs torch")
    fork_server = ForkServer("transformer", "simulated")
    yield fork_server
    fork_server.close()
