"""The truth table written by the layout tests: each layout's distance from one process; what torch cannot do."""

import csv
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from sweep.contract import Measurement, Run
from sweep.records.validity import mismatches
from tests.support.ranks.harness import ForkServer
from tests.support.transformer.cases import Case, broken_rules

FP32 = (1e-6, 1e-6)
BF16 = (1e-3, 5e-3)


def furthest(measured: list[float], true: list[float]) -> float:
    """The greatest relative distance."""
    return max(abs(a / b - 1) for a, b in zip(measured, true, strict=True))


@dataclass
class Truths:
    """The results of a test session, in order."""

    compared: list[tuple] = field(default_factory=list)
    """(layout, dtype, ranks, distances of loss and norm or None where the test failed, seconds)"""
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """(layout, what happens if it is still run, the plan's reason)"""

    def compare(self, fork_server: ForkServer, case: Case, run: Run, bounds: tuple[float, float]) -> None:
        """Run the case, assert that it equals one process, and store its line: also of a failure."""
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


def compare(fork_server: ForkServer, run: Run, bounds: tuple[float, float]) -> tuple[float, float]:
    """Run it, and assert that each rank matches the reference. Returns the distances of loss and norm."""
    from tests.support.transformer.reference import truth  # imports torch

    assert broken_rules(run) == []
    ranks = fork_server.attempt(run)
    losses, norms = truth(run)
    worst = (0.0, 0.0)
    for rank in ranks:
        assert rank.exit == 0, rank.stderr
        found = rank.measurement
        distances = furthest(found["losses"], losses), furthest(found["grad_norms"], norms)
        worst = max(worst[0], distances[0]), max(worst[1], distances[1])
        assert mismatches(run, [Measurement(**{k: v for k, v in found.items() if k != "kind"})]) == []
        assert found["effective"]["global_batch_tokens"] == run.global_batch_tokens
    assert worst[0] < bounds[0], f"loss is {worst[0]:.1e} off: {found['losses']}, truth {losses}"
    assert worst[1] < bounds[1], f"gradient norm is {worst[1]:.1e} off: {found['grad_norms']}, truth {norms}"
    return worst


def _write(path: Path, heads: tuple[str, ...], rows: Iterable[tuple]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])


def _cells(name: str, dtype: str, ranks: int, distances: tuple[float, float] | None, seconds: float) -> tuple:
    loss, norm = ("failed", "failed") if distances is None else (f"{d:.1e}" for d in distances)
    return name, dtype, ranks, loss, norm, f"{seconds:.1f}"
