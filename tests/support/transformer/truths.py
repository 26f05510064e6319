"""The truth table written by the layout tests: each layout's distance from one process; what torch cannot do."""

import csv
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from sweep.contract import Run
from tests.support.ranks.harness import ForkServer
from tests.support.transformer.cases import Case


@dataclass
class Truths:
    """The results of a test session, in order."""

    compared: list[tuple] = field(default_factory=list)
    """(layout, dtype, ranks, distances of loss and norm or None where the test failed, seconds)"""
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """(layout, what happens if it is still run, the plan's reason)"""

    def compare(self, fork_server: ForkServer, case: Case, run: Run, bounds: tuple[float, float]) -> None:
        """Run the case, assert that it equals one process, and store its line: also of a failure."""
        from tests.support.transformer.comparison import compare  # imports torch

        start, worst = time.monotonic(), None
        try:
            worst = compare(fork_server, run, bounds)
        finally:
            self.compared.append((case.name, run.dtype, run.gpus, worst, time.monotonic() - start))

    def write(self, path: Path) -> None:
        """Two tables, from which `docs/summaries.py` makes those of the page."""
        rows = ((*_cells(*row), version("torch")) for row in self.compared)
        _write(path, ("layout", "dtype", "ranks", "loss", "norm", "seconds", "torch"), rows)
        _write(path.with_name("parallel_refused.csv"), ("layout", "happens", "reason"), self.refused)


def _write(path: Path, heads: tuple[str, ...], rows: Iterable[tuple]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])


def _cells(name: str, dtype: str, ranks: int, distances: tuple[float, float] | None, seconds: float) -> tuple:
    loss, norm = ("failed", "failed") if distances is None else (f"{d:.1e}" for d in distances)
    return name, dtype, ranks, loss, norm, f"{seconds:.1f}"
