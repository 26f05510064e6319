"""One warm parent for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parallel.harness import Zygote


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    pytest.importorskip("torch", reason="needs torch")
    warm = Zygote("transformer", "simulated")
    yield warm
    warm.close()
