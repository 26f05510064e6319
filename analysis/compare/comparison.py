"""What a comparison of two sweeps found: noise, changes, cells, runs, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from analysis.metrics import Metric


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much a configuration differs from one run to the next, as the standard deviation of a change."""

    deviation: float
    freedom: float
    estimated: bool
    """false: too few pairs, ``noise.ASSUMED_NOISE`` was taken"""
    iterations: float = 0.0
    """The usual standard error of one run's logarithm, by its iterations; no run is assumed more precise than that"""


@dataclass(frozen=True, kw_only=True)
class Change:
    """One comparison of two values. Ratios: 0.05 is 5 % better, -0.05 is 5 % worse, whatever the metric."""

    change: float
    low: float
    high: float
    """its 95 % confidence interval, not corrected for other comparisons"""
    p: float
    """chance of such a change by noise alone, corrected for the number of comparisons"""

    def significant(self, level: float) -> bool:
        """Whether it is more than noise."""
        return self.p <= level

    def text(self, level: float | None = None) -> str:
        """-5.1% (-6.0 to -4.2) *, the star where it is significant at the level."""
        star = " *" if level is not None and self.significant(level) else ""
        return f"{self.change:+.1%} ({self.low * 100:+.1f} to {self.high * 100:+.1f}){star}"


@dataclass(frozen=True, kw_only=True)
class RunPair:
    """One configuration that both sweeps measured."""

    model: str
    nodes: int
    layout: Mapping[str, Any]
    run_a: str
    run_b: str
    value_a: float
    value_b: float
    change: Change
    verdict: str
    """same, better or worse"""


@dataclass(frozen=True, kw_only=True)
class CellPair:
    """One cell of the heatmap in both sweeps."""

    model: str
    nodes: int
    value_a: float | None
    value_b: float | None
    best: Change | None
    """of the best configuration, which may be another one"""
    pairs: int
    """configurations that both measured"""
    typical: Change | None
    """the median over these; None below two"""
    verdict: str
    """same, better, worse, lost (A has a value, B tried and failed), missing (B did not try, or was stopped), new"""

    def slowdown(self, level: float) -> float:
        """By how much it is significantly worse, as a fraction; 0 where it is not."""
        found = [c for c in (self.best, self.typical) if c is not None and c.significant(level)]
        return max([0.0, *(-c.change for c in found)])

    def text(self, level: float) -> str:
        """The change of the best configuration, whose values the cell shows; that of the median run where it alone is
        significant.
        """
        of_best = self.best.text(level) if self.best is not None else ""
        if self.typical is None or not self.typical.significant(level):
            return of_best
        if self.best is not None and self.best.significant(level):
            return of_best
        return f"{self.typical.text(level)}, median of {self.pairs} runs"


@dataclass(frozen=True, kw_only=True)
class Failing:
    """A configuration that A measured and that fails in B, or was stopped there from outside."""

    model: str
    nodes: int
    run_a: str
    run_b: str
    outcome: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What differs between two sweeps."""

    metric: Metric
    level: float
    noise: Noise
    conditions: tuple[tuple[str, str, str], ...]
    """(what, in A, in B): what each sweep has throughout and the other has not"""
    cells: tuple[CellPair, ...]
    runs: tuple[RunPair, ...]
    failing: tuple[Failing, ...]
    stopped: tuple[Failing, ...] = ()
    """those that a user or the scheduler ended in B: no failure, but not measured either"""

    def changed_cells(self) -> list[CellPair]:
        """Cells that are significantly better or worse, or that are lost."""
        return [cell for cell in self.cells if cell.verdict in ("better", "worse", "lost")]

    def changed_runs(self) -> list[RunPair]:
        """Runs that are significantly better or worse."""
        return [run for run in self.runs if run.verdict != "same"]

    def slower_cells(self, min_share: float) -> list[CellPair]:
        """Cells that are lost, or significantly worse by at least that fraction."""
        found = ((cell, cell.slowdown(self.level)) for cell in self.cells)
        return [cell for cell, worse in found if cell.verdict == "lost" or (worse > 0 and worse >= min_share)]

    def document(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "metric": self.metric.name,
            "level": self.level,
            "noise": asdict(self.noise),
            "conditions": [{"name": name, "a": a, "b": b} for name, a, b in self.conditions],
            "cells": [asdict(cell) for cell in self.cells],
            "runs": [asdict(run) for run in self.runs],
            "failing": [asdict(run) for run in self.failing],
            "stopped": [asdict(run) for run in self.stopped],
        }
