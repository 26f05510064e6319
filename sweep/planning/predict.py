"""Predictions for candidates: peak memory, step time, which cannot fit; and the resulting order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.contract import Rule
from sweep.inputs.grid import Grid, max_run_s
from sweep.physics import memory, pipeline
from sweep.physics.columns import Numbers
from sweep.physics.hardware import GIB, Gpu
from sweep.physics.prediction import describe
from sweep.physics.profiles import PROFILES, SETTINGS, MemoryProfile, profile_of
from sweep.planning.expand import Columns, Indices
from sweep.planning.reasons import combinations
from sweep.planning.runs import ASSUMED_START_S

Floats = npt.NDArray[np.float64]
_RANKS = (*(f"a rank of the {stage} stage" for stage in pipeline.STAGES), "a rank")
_DIGEST = re.compile(r"[0-9a-f]{16}\Z")
FITS = Rule(
    "memory",
    lambda c: c["over memory"],
    "does not fit: {heaviest rank} needs {needed GiB:,.10g} GiB ({states GiB:,.10g} GiB for weights, gradients and "
    "optimizer), {gpu name} has {usable GiB:g} GiB (predicted{memory allowance})",
)
"""Reads columns that ``Physics.check`` adds; rejects nothing where no peak can be predicted. Sizes are rounded to three
digits, so that texts stay few."""


TOO_LONG = Rule(
    "max_run_time",
    lambda c: c["too long"],
    "would be ended after {longest run s:,.10g} s: predicted to take {predicted run s:,.10g} s (a larger max_run_time, "
    "fewer iterations or include keep it)",
)
NO_CHANCE = Rule(
    "no_chance",
    lambda c: c["too slow"],
    "has a chance below 1 in 10,000 to be the fastest: predicted {times slower:g} times slower than four others of its "
    "cell (include, or a strategy other than guided, keeps it)",
)
"""Both read columns that ``Physics.foresee`` adds."""
BEATEN_BY, FAR = 4, NormalDist().inv_cdf(1e-4)
"""A run is left out if it is so many standard deviations behind the fourth fastest that fits: each of four fails with a
chance of about 0.1 (``sweep.search.posterior.OTHER_FAILURES``), so that all do in 1 of 10,000 cells, too. On the
playbook's 1,643 runs in 14 cells this leaves out 511, the best of which has half the rate of its cell's best."""


class Physics:
    """The models of memory and step time for one workload on one kind of GPU.

    A workload without a memory profile has no predicted peak, and none of its candidates is rejected by memory; nor is
    any if the GPU's memory is unknown.
    """

    def __init__(self, workload: str, gpu: Gpu, max_memory_share: float | None = None) -> None:
        """``max_memory_share``: of the GPU's memory, that a candidate may need; None: all, and the model's error."""
        self._workload, self._gpu, self._share = workload, gpu, max_memory_share
        self._usable = memory.usable_bytes(gpu)

    def check(self, columns: Columns) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Predict every candidate with a known layout, and add the columns that FITS reads.

        Returns the peak of each candidate's heaviest rank in bytes, as torch counts it, nan if it cannot be predicted;
        and which need more than the GPU has, though perhaps by less than the model's error.
        """
        whole = np.broadcast_to(columns["dp is whole"] & columns["batch is near"], columns.size)
        rows = np.flatnonzero(whole)
        total, states, needed, limit = (np.full(columns.size, np.nan) for _ in range(4))
        stage = np.zeros(columns.size, dtype=np.int64)
        margin = 0.0
        for places, profile in self._groups(columns, rows):
            if profile is None:
                continue
            mine = rows[places]
            taken = Numbers(columns, mine)
            total[mine], states[mine], stage[mine] = memory.heaviest(taken, profile)
            needed[mine] = total[mine] + memory.outside_torch_bytes(taken)
            if np.isfinite(profile.margin):
                margin = profile.margin
                limit[mine] = (self._usable or np.inf) * (self._share or 1 + margin)
        with np.errstate(invalid="ignore"):
            over, broken = needed > (self._usable or np.inf), needed > limit
        piped = np.broadcast_to(columns["pp"], columns.size) > 1
        columns.derive("over memory", broken)
        columns.derive("needed GiB", rounded(needed / GIB))
        columns.derive("states GiB", rounded(states / GIB))
        columns.derive_words("heaviest rank", _RANKS, np.where(piped, stage, len(_RANKS) - 1))
        columns.derive("gpu name", f"the {self._gpu.name}")
        columns.derive("usable GiB", round((self._usable or 0.0) / GIB, 1))
        allowed = f", up to {100 * margin:g} % more is accepted: the model's error" if margin else ""
        if self._share is not None:
            allowed = f", max_memory_share allows {100 * self._share:g} % of it"
        columns.derive("memory allowance", allowed)
        return total, over

    def foresee(self, columns: Columns, rows: Indices, grid: Grid, over: Any, spared: Any) -> None:
        """Add the seconds of one optimizer step of one cell's rows, which nothing else rejects, and the columns that
        TOO_LONG and NO_CHANCE read. On unknown hardware the seconds are nominal, good only for an order.

        ``over``: the candidates whose predicted memory is more than the GPU has; ``spared``: those that neither rule
        rejects. Neither rejects runs of a trainer without a profile, or on a GPU whose speed is unknown.
        """
        run_s, slower = np.zeros(columns.size), np.ones(columns.size)
        too_long, too_slow = np.zeros(columns.size, dtype=bool), np.zeros(columns.size, dtype=bool)
        log_s, spread = np.zeros(columns.size), np.zeros(columns.size)
        known = bool(self._gpu.peaks_flops)
        for places, profile in self._groups(columns, rows):
            found = describe(Numbers(columns, rows[places]), self._gpu, profile or PROFILES["builtin"])
            log_s[rows[places]], spread[rows[places]] = found.log_median, found.prior_sd
            known &= profile is not None
        step_s = np.exp(log_s)
        rows = rows[~spared[rows]]
        if known and len(rows):
            run_s[rows] = ASSUMED_START_S + (grid.warmup_iterations + grid.iterations) * step_s[rows]
            behind = log_s[rows] - np.log(np.broadcast_to(columns["global_batch_tokens"], columns.size)[rows])
            first = np.lexsort((behind, over[rows]))[:BEATEN_BY]
            too_long[rows] = run_s[rows] > max_run_s(grid)
            too_long[rows[first]] = False  # no cell is left without a run by a prediction of time alone
            ahead = first[-1]
            if grid.strategy == "guided" and len(first) == BEATEN_BY and not over[rows[ahead]]:
                behind -= behind[ahead]
                too_slow[rows] = -behind < FAR * np.hypot(spread[rows], spread[rows[ahead]])
                slower[rows] = np.exp(behind)
        columns.derive("predicted step s", step_s)
        columns.derive("too long", too_long)
        columns.derive("too slow", too_slow)
        columns.derive("predicted run s", rounded(run_s, 2))
        columns.derive("longest run s", max_run_s(grid))
        columns.derive("times slower", rounded(slower, 2))

    def _groups(self, columns: Columns, rows: Indices) -> Iterator[tuple[Indices, MemoryProfile | None]]:
        """Places of rows, by what changes the workload's profile: its parameters, and compilation. None: unknown."""
        kinds, places = combinations(columns, [name for name in (*SETTINGS, "compile") if name in columns], rows)
        for number, values in enumerate(kinds):
            profile = profile_of(self._workload, values, compiled=bool(values.get("compile", False)))
            yield np.flatnonzero(places == number), profile


def rounded(values: Floats, digits: int = 3) -> Floats:
    """Each value rounded to so many digits; values not positive and finite become 0."""
    good = np.isfinite(values) & (values > 0)
    safe = np.where(good, values, 1.0)
    unit = 10.0 ** (np.floor(np.log10(safe)) - (digits - 1))
    found: Floats = np.where(good, np.round(np.rint(safe / unit) * unit, 6), 0.0)
    return found


def costs(step_s: Any, tokens: Any, over: Any) -> Any:
    """The sort key of runs: seconds per token, a hundred times as much if the predicted memory is over."""
    return step_s / tokens * np.where(over, 100.0, 1.0)


def _digest(run_id: str) -> int:
    """The hex digits of its end; of a name that others gave, as a hash."""
    found = _DIGEST.search(run_id)
    return int(found[0] if found else hashlib.sha256(run_id.encode(errors="replace")).hexdigest()[:16], 16)


def order(cells: Sequence[Any], cost: Any, repeats: Any, ids: Sequence[str], impossible: Any = False) -> Indices:
    """The order of the runs, given each one's (nodes, model), cost, repeat and run_id: cells in turn, the best of each
    first. ``impossible`` ones come after all others, so that they take no turn of their cell.
    """
    digest = np.array([_digest(run_id) for run_id in ids], dtype=np.uint64)
    numbers = {cell: i for i, cell in enumerate(sorted(set(cells)))}
    cell = np.array([numbers[c] for c in cells], dtype=np.int64)
    cost, repeat = np.asarray(cost, dtype=np.float64), np.asarray(repeats, dtype=np.int64)
    last = np.broadcast_to(impossible, len(cell))
    by_cell = np.lexsort((digest, cost, repeat, last, cell))
    starts = np.concatenate([[True], np.diff(cell[by_cell]) != 0]) if len(by_cell) else np.array([], dtype=bool)
    place = np.arange(len(by_cell)) - np.maximum.accumulate(np.where(starts, np.arange(len(by_cell)), 0))
    rank = np.empty(len(by_cell), dtype=np.int64)
    rank[by_cell] = place
    return np.lexsort((digest, cell, rank, repeat, last)).astype(np.int64)
