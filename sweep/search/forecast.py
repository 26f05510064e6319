"""What measured runs say of a grid's runs: its best layouts with their intervals, before any of them runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sweep.physics.constants import NOISE
from sweep.physics.job import LIKELY
from sweep.search.candidates import UNKNOWN_GPU, Candidates, joined_candidates
from sweep.search.gaussian import Floats
from sweep.search.observations import Known
from sweep.search.saving import RecordedRun


def unlearned(recorded: RecordedRun, grid: Candidates) -> str | None:
    """What the results cannot teach: a workload or kind of GPU of the grid of which they have no run; None: nothing."""
    known, notes = set(recorded.candidates.workloads), []
    if missing := ", ".join(sorted(set(grid.workloads) - known)):
        of = ", ".join(sorted(known))
        notes.append(f"note: the results are of {of}: what {missing} adds to a step is not learned from them")
    there, here = recorded.candidates.gpu.name, grid.gpu.name
    if there != here and UNKNOWN_GPU.name not in (there, here):
        notes.append(f"note: the results are of {there}: their speeds are taken for those of {here}")
    return "\n".join(notes) or None


@dataclass(frozen=True)
class Expected:
    """A layout of a grid as the measured runs predict it."""

    row: int
    """among the grid's candidates"""
    tokens_per_second_per_gpu: float
    low: float
    """5 % of such predictions are below"""
    high: float
    works: float
    """chance to run"""


def expected_best(recorded: RecordedRun, grid: Candidates, most: int) -> Mapping[int, list[Expected]]:
    """Cell of the grid -> its most promising layouts, by all recorded runs. None of them is a measurement."""
    c = replace(joined_candidates(grid, recorded.candidates), by_size=True)
    known = Known(c)
    for place, outcome in enumerate(recorded.outcomes):
        rate, peak = recorded.tokens_per_second_per_gpu[place], recorded.peak_memory_bytes[place]
        known.end(len(grid) + place, outcome, rate, peak)
    posterior, able = known.posterior(), ~known.infeasible[: len(grid)]
    found = {}
    for cell in np.unique(grid.cells).tolist():
        rows = np.flatnonzero((grid.cells == cell) & able)
        mean, works = posterior.log_rates(rows), posterior.success(rows)
        spread = np.hypot(posterior.spreads(rows), NOISE.spread)
        best = np.argsort(-(mean + np.log(np.maximum(works, 1e-9))), kind="stable")[:most]
        rates = np.exp(mean[best, None] + LIKELY * spread[best, None] * np.array([0.0, -1.0, 1.0])).tolist()
        found[cell] = [
            Expected(int(row), rate, low, high, float(chance))
            for row, (rate, low, high), chance in zip(rows[best], rates, works[best], strict=True)
        ]
    return found


def uncertainty(unmeasured: Candidates) -> Floats:
    """By what factor 1 in 20 runs is slower than predicted, and 1 in 20 faster, where nothing was measured."""
    return np.asarray(np.exp(LIKELY * unmeasured.layouts.prior_sd))
