"""The observed results of a plan's runs, and what follows from them.

Everything derived is a function of the results alone, not of the order in which they arrived: a pilot that followed the
sweep from the start and a launcher that rereads the journals make the same decisions.
"""

from __future__ import annotations

import bisect

import numpy as np

from sweep.outcomes import Outcome
from sweep.search.candidates import Bools, Candidates
from sweep.search.gaussian import Floats, Ints
from sweep.search.memory_model import KNOWN_TRAINER
from sweep.search.posterior import End, Posterior

PEAK_WEIGHT = 3.0
"""weight of the prior: a measured scale of the memory model counts as if this many more peaks had been as predicted"""
SURE = 2.0
"""standard deviations by which a corrected prediction must exceed the memory"""
RECHECK_PEAKS_EVERY = 1.25
"""measured peaks are re-evaluated when their number has grown by this factor"""


class Known:
    """The runs that were tried and how they ended. Mutable: one per sweep and reader."""

    def __init__(self, candidates: Candidates) -> None:
        size = len(candidates)
        self.candidates = candidates
        self.begun: Bools = np.zeros(size, dtype=bool)
        self.log_rates: Floats = np.full(size, np.nan)
        """logarithm of measured tokens/s/GPU; nan if there is none"""
        self.stopped: Bools = np.zeros(size, dtype=bool)
        """had lost: its rate is of few iterations"""
        self.tries_of_repeat: Ints = np.zeros((candidates.repeats.max(initial=0) + 1, len(candidates.cell_names)), int)
        """(repeats, cells) runs begun"""
        self.best: Floats = np.full(len(candidates.cell_names), -np.inf)
        """logarithm of the best measured tokens/s/GPU of each cell"""
        self.ruled_out: Bools = np.zeros(size, dtype=bool)
        """needs at least as much memory as a run that ran out of memory"""
        self._ends: dict[int, tuple[float, End]] = {}
        """when and how each run ended"""
        self._ended = InOrder()
        self._peaks = InOrder()
        self._posterior: Posterior | None = None
        self._taught: int
        self._over: Bools = np.zeros(size, dtype=bool)
        self._peaks_read = 0

    @property
    def tries(self) -> Ints:
        """Runs begun of each cell."""
        found: Ints = self.tries_of_repeat.sum(axis=0)
        return found

    def begin(self, index: int) -> None:
        """A run was started."""
        if not self.begun[index]:
            self.begun[index] = True
            self.tries_of_repeat[self.candidates.repeats[index], self.candidates.cells[index]] += 1

    def end(
        self,
        index: int,
        outcome: Outcome,
        tokens_per_second_per_gpu: float | None = None,
        peak_memory_bytes: float | None = None,
        when: float | None = None,
        *,
        stopped: bool = False,
    ) -> None:
        """A run ended. Only an out-of-memory of the GPU rules out others; any failure moves similar runs back.

        ``when``: the key that orders the ends; by default their order of arrival. A rate or a peak that is nan, 0 or
        infinite is none.
        """
        rate, peak = (float(value or 0) for value in (tokens_per_second_per_gpu, peak_memory_bytes))
        log_rate = float(np.log(rate)) if outcome is Outcome.OK and 0 < rate < np.inf else None
        when = self._ended.latest + 1 if when is None else when
        end = End(outcome, log_rate, peak if 0 < peak < np.inf else None)
        self.stopped[index] = stopped
        if self._ends.get(index) == (when, end):
            return
        self.begin(index)
        self.reopen(index)
        self._ends[index] = when, end
        self._ended.add(when, index)
        if end.peak_memory_bytes is not None:
            self._peaks.add(when, index)
        if outcome is Outcome.OOM_CUDA:  # not oom_host: a host's memory is shared with other processes
            self._rule_out(index)
        if log_rate is not None:
            self.log_rates[index] = log_rate
            cell = self.candidates.cells[index]
            self.best[cell] = max(self.best[cell], log_rate)

    def reopen(self, index: int) -> None:
        """Discard a run's result: it is measured again."""
        ended = self._ends.pop(index, None)
        if ended is None:
            return
        when, end = ended
        for order in (self._ended, self._peaks):
            order.drop(when, index)
        self.log_rates[index] = np.nan
        cell = self.candidates.cells[index]
        self.best[cell] = np.fmax.reduce(self.log_rates[self.candidates.cells == cell], initial=-np.inf)
        if end.outcome is Outcome.OOM_CUDA:
            self.ruled_out = np.zeros(len(self.candidates), dtype=bool)
            for other in (i for i, (_, end) in self._ends.items() if end.outcome is Outcome.OOM_CUDA):
                self._rule_out(other)

    def _rule_out(self, index: int) -> None:
        """Rule out what needs as much as this run. If this run is ruled out already, so are all of those."""
        if not self.ruled_out[index]:
            self.ruled_out |= self.candidates.needs.dominating(index)

    @property
    def infeasible(self) -> Bools:
        """Infeasible runs: by the static rules, by an out-of-memory that they dominate, by measured peaks."""
        enough = 0
        while (further := int(enough * RECHECK_PEAKS_EVERY) + 1) <= len(self._peaks):
            enough = further
        if enough != self._peaks_read or self._peaks.changed_before(enough):
            self._over, self._peaks_read = self._over_memory(self._peaks.first(enough)), enough
        found: Bools = self.candidates.impossible | self.ruled_out | self._over
        return found

    def posterior(self) -> Posterior:
        """Of all candidates, given how runs ended so far."""
        if self._posterior is None or self._ended.changed_before(self._taught):
            self._posterior = Posterior(self.candidates)
            self._taught = 0
        if self._taught < len(self._ended):
            further = self._ended.first(len(self._ended), self._taught).tolist()
            self._posterior.learn([(index, self._ends[index][1]) for index in further])
            self._taught = len(self._ended)
        return self._posterior

    def _over_memory(self, rows: Ints) -> Bools:
        """Runs over the GPU's memory once predictions are corrected by measured peaks, per model.

        Corrections only add to what the static rules reject, and only what is over by SURE standard deviations. What
        the memory is stated to be counts for less than a run that worked with more.
        """
        c, found = self.candidates, np.zeros(len(self.candidates), dtype=bool)
        rows = rows[c.memory_use[rows] > 0]
        if not len(rows):
            return found
        predicted = np.log(np.maximum(c.memory_use, 1e-9))
        peaks = np.array([self._ends[i][1].peak_memory_bytes for i in rows.tolist()], dtype=np.float64)
        measured = np.log(peaks / c.memory_limit_bytes)
        limit = max(0.0, float(measured.max()))
        for model in np.unique(c.models[rows]):
            ratios = (measured - predicted[rows])[c.models[rows] == model]
            weight = len(ratios) + PEAK_WEIGHT
            scale = ratios.sum() / weight
            spread = float(np.sqrt((len(ratios) * ratios.var() + KNOWN_TRAINER**2 * PEAK_WEIGHT) / weight))
            found |= (c.models == model) & (predicted + scale - SURE * spread > limit)
        return found


class InOrder:
    """Runs in the order of their ends, in whatever order they arrive."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int]] = []
        self._changed = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def latest(self) -> float:
        """The time of the last end; 0 before the first."""
        return self._items[-1][0] if self._items else 0.0

    def add(self, when: float, index: int) -> None:
        """A run ended then."""
        place = bisect.bisect_left(self._items, (when, index))
        self._items.insert(place, (when, index))
        self._changed = min(self._changed, place)

    def drop(self, when: float, index: int) -> None:
        """The end no longer counts; of one that is not here, nothing changes."""
        place = bisect.bisect_left(self._items, (when, index))
        if place < len(self._items) and self._items[place] == (when, index):
            del self._items[place]
            self._changed = min(self._changed, place)

    def changed_before(self, place: int) -> bool:
        """Whether any of the first ``count`` changed since ``first`` last returned as many."""
        return self._changed < place

    def first(self, number: int, start: int = 0) -> Ints:
        """The runs with the first ends, in their order, without those before ``start``."""
        self._changed = max(self._changed, number)
        return np.array([index for _, index in self._items[start:number]], dtype=np.int64)
