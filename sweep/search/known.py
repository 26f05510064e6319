"""What is known of a plan's runs so far, folded in one event at a time, and what follows from it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sweep.outcomes import Outcome
from sweep.search.candidates import MEMORY_ERROR, Bools, Candidates
from sweep.search.learning import Floats, TimeModel, learn_times, success_rates, unlearned
from sweep.search.terms import NAMES

OUT_OF_MEMORY = frozenset({Outcome.OOM_CUDA})
"""Outcomes that rule out what needs more; oom_host does not, since a host's memory is shared with what else runs"""
PEAK_WEIGHT = 3.0
"""a measured scale of the memory model counts as if so many further peaks had been as predicted"""
SURE = 2.0
"""standard deviations by which a corrected prediction must be over the memory"""
PEAKS_ANEW = 1.25
"""measured peaks are looked at anew when there are so many times more of them"""
MOST_TRIED = 128
"""runs that a chance to work is judged by: the latest"""
LEARN_EVERY = 1.02
"""the model is learned anew when there are so many times more measurements"""


class Known:
    """The runs that were tried and how they ended. Mutable: one per sweep and reader of it."""

    def __init__(self, candidates: Candidates) -> None:
        size = len(candidates)
        self.candidates = candidates
        self.begun: Bools = np.zeros(size, dtype=bool)
        self.ended: Bools = np.zeros(size, dtype=bool)
        self.log_rates: Floats = np.full(size, np.nan)
        """logarithm of measured tokens/s/GPU; nan where there is none"""
        self.ruled_out: Bools = np.zeros(size, dtype=bool)
        """needs at least as much memory as a run that ran out of it"""
        self.tries: npt.NDArray[np.int64] = np.zeros(len(candidates.cell_names), dtype=np.int64)
        self.best: Floats = np.full(len(candidates.cell_names), -np.inf)
        """logarithm of the best measured tokens/s/GPU of each cell"""
        self._measured: list[int] = []
        self._worked: dict[int, float] = {}
        self._peaks: dict[int, float] = {}
        self._model = unlearned(len(NAMES), len(candidates.cell_names))
        self._learned_from = 0
        self._over: Bools = np.zeros(size, dtype=bool)
        self._peaks_read = 0

    def begin(self, index: int) -> None:
        """A run was started."""
        if not self.begun[index]:
            self.begun[index] = True
            self.tries[self.candidates.cells[index]] += 1

    def end(
        self,
        index: int,
        outcome: Outcome,
        tokens_per_second_per_gpu: float | None = None,
        peak_memory_bytes: float | None = None,
    ) -> None:
        """A run ended. Only an out-of-memory of the GPU rules out others; any failure moves its likes back."""
        self.begin(index)
        self.ended[index] = True
        ok = outcome is Outcome.OK
        self._worked[index] = float(ok)
        if peak_memory_bytes:
            self._peaks[index] = peak_memory_bytes
        if outcome in OUT_OF_MEMORY:
            self.ruled_out |= self.candidates.needs.dominating(index)
        if ok and tokens_per_second_per_gpu:
            self._add_rate(index, float(np.log(tokens_per_second_per_gpu)))

    def _add_rate(self, index: int, log_rate: float) -> None:
        if np.isnan(self.log_rates[index]):
            self._measured.append(index)
        self.log_rates[index] = log_rate
        cell = self.candidates.cells[index]
        self.best[cell] = max(self.best[cell], log_rate)

    @property
    def hopeless(self) -> Bools:
        """Runs that cannot work: by the static rules, by an out-of-memory that they dominate, by measured peaks."""
        if len(self._peaks) > self._peaks_read * PEAKS_ANEW:
            self._over, self._peaks_read = self._over_memory(), len(self._peaks)
        found: Bools = self.candidates.impossible | self.ruled_out | self._over
        return found

    def model(self) -> TimeModel:
        """Step times as learned so far."""
        n = len(self._measured)
        if n > self._learned_from * LEARN_EVERY:
            rows = np.array(self._measured[-1024:])
            log_times = self.candidates.log_tokens_per_gpu[rows] - self.log_rates[rows]
            cells, terms = self.candidates.cells[rows], self.candidates.terms[rows]
            self._model = learn_times(terms, cells, log_times, self._model)
            self._learned_from = n
        return self._model

    def predicted(self, rows: npt.NDArray[np.int64]) -> Floats:
        """Logarithm of tokens/s/GPU that the rows are predicted to reach."""
        model, c = self.model(), self.candidates
        found: Floats = c.log_tokens_per_gpu[rows] - model.log_times(c.terms[rows], c.cells[rows])
        return found

    def success(self, rows: npt.NDArray[np.int64]) -> Floats:
        """How likely each of the rows works, by its likes that were tried."""
        tried = np.array(list(self._worked)[-MOST_TRIED:], dtype=np.int64)
        worked = np.array(list(self._worked.values())[-MOST_TRIED:])
        features = self.candidates.features
        return success_rates(self.candidates.works[rows], features[rows], features[tried], worked)

    def _over_memory(self) -> Bools:
        """Runs over the GPU's memory once predictions are corrected by measured peaks, per model.

        Corrections only add to what the static rules reject, and only what is over by SURE standard deviations.
        """
        c, found = self.candidates, np.zeros(len(self.candidates), dtype=bool)
        rows = np.array([i for i in self._peaks if c.memory_use[i] > 0], dtype=np.int64)
        if not len(rows):
            return found
        predicted = np.log(np.maximum(c.memory_use, 1e-9))
        measured = np.log([self._peaks[i] / c.memory_limit_bytes for i in rows])
        for model in np.unique(c.models[rows]):
            ratios = (measured - predicted[rows])[c.models[rows] == model]
            weight = len(ratios) + PEAK_WEIGHT
            scale = ratios.sum() / weight
            spread = float(np.sqrt((len(ratios) * ratios.var() + MEMORY_ERROR**2 * PEAK_WEIGHT) / weight))
            found |= (c.models == model) & (predicted + scale - SURE * spread > 0)
        return found
