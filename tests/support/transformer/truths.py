"""The truth table written by the layout tests: each layout's distance from one process; what torch cannot do."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path


@dataclass
class Truths:
    """The results of a test session, in order."""

    compared: list[tuple] = field(default_factory=list)
    """(layout, dtype, ranks, distances of loss and norm or None where the test failed, seconds)"""
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """(layout, what happens if it is still run, the plan's reason)"""

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
