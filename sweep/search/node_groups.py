"""The searches of a sweep whose site has several node groups: one per group, which knows nothing of the others.

Their GPUs differ, so neither measurements nor predictions of one hold for another; a budget is each group's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweep.physics.hardware import Gpu
from sweep.planning.runs import PlannedRun, runs_on
from sweep.search.remeasure import to_repeat
from sweep.search.search import Search
from sweep.state.state import SweepState


class GroupedSearch:
    """The search of each node group. On a site without groups: the one search of all runs."""

    def __init__(self, runs: Sequence[PlannedRun], gpus: Mapping[str, Gpu], strategy: str, budget: Any) -> None:
        """``gpus``: node group -> its GPU; "" -> the GPU of a site without groups."""
        self._runs = [runs_on(runs, group) for group in gpus]
        self._searches = [
            Search(own, gpu, strategy, budget) for own, gpu in zip(self._runs, gpus.values(), strict=True)
        ]

    def skipped(self, sweep_state: SweepState) -> Mapping[str, str]:
        """run_id -> why it will not be started, as known now."""
        return {run: word for search in self._searches for run, word in search.skipped(sweep_state).items()}

    def missed(self, sweep_state: SweepState) -> Mapping[str, tuple[float, float]]:
        """run_id -> (expected gain, chance that it is worth it), for the same."""
        return {run: lost for search in self._searches for run, lost in search.missed(sweep_state).items()}

    def to_remeasure(self, sweep_state: SweepState, share: float) -> list[str]:
        """The runs of the top configurations that have no repeat: `sweep.search.remeasure.to_repeat`."""
        both = zip(self._runs, self._searches, strict=True)
        found = [
            (further, runs[place].run_id)
            for runs, search in both
            for further, place in to_repeat(search.update(sweep_state), share)
        ]
        found.sort(key=lambda item: item[0])  # the best two of the cells of every group, then the others
        return [run_id for _, run_id in found]
