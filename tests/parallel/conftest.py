"""One warm parent for all tests of this folder, and the truth table that they make.

With SWEEP_TRUTH_TABLE=FILE the table is written there: each layout, how far it is from one process, how long it took.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parallel.harness import Zygote


@pytest.fixture(scope="session")
def truth_rows() -> Iterator[list[tuple]]:
    """(layout, dtype, ranks, distance of loss, distance of norm, seconds), written at the end where asked."""
    rows: list[tuple] = []
    yield rows
    if target := os.environ.get("SWEEP_TRUTH_TABLE"):
        Path(target).write_text(_table(rows))


def _table(rows: list[tuple]) -> str:
    import torch

    lines = [f"| {n} | {d} | {r} | {loss:.1e} | {norm:.1e} | {s:.1f} |" for n, d, r, loss, norm, s in rows]
    return "\n".join(
        [
            "# Layouts against one process",
            "",
            f"Made by `make test-parallel` with torch {torch.__version__}: {len(rows)} lines. Relative distance of",
            "losses and gradient norms over three optimizer steps, the worst over steps and ranks.",
            "",
            "| layout | dtype | ranks | loss | norm | seconds |",
            "|---|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    pytest.importorskip("torch", reason="needs torch")
    warm = Zygote("transformer", "simulated")
    yield warm
    warm.close()
