"""What measured runs say of a grid's runs: its best layouts with their intervals, before any of them runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from sweep.physics.job import LIKELY
from sweep.search.candidates import UNKNOWN_GPU, Candidates, joined_candidates
from sweep.search.gaussian import Floats
from sweep.search.observations import Known
from sweep.search.saving import RecordedRun
from sweep.search.step_time_model import interval


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
    """1 in 20 runs is slower, disturbed ones among them"""
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
        best = np.argsort(-(mean + np.log(np.maximum(works, 1e-9))), kind="stable")[:most]
        slower, faster = interval(posterior.spreads(rows[best]) ** 2, posterior.fit.disturbed)
        rates = np.exp(mean[best, None] + np.stack([np.zeros_like(slower), -slower, faster], axis=1)).tolist()
        found[cell] = [
            Expected(int(row), rate, low, high, float(chance))
            for row, (rate, low, high), chance in zip(rows[best], rates, works[best], strict=True)
        ]
    return found


def uncertainty(unmeasured: Candidates) -> Floats:
    """By what factor 1 in 20 runs is slower than predicted, and 1 in 20 faster, where nothing was measured."""
    return np.asarray(np.exp(LIKELY * unmeasured.layouts.prior_sd))
