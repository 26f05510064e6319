"""What exclusions and other runs of a sweep say of the nodes of one run: for `sweep explain --gap`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sweep.cli.progress_text import plural

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from sweep.records.schema import Record
    from sweep.store.directory import SweepDir

LEVEL = 0.01
"""The chance of a false claim: that of `sweep compare`"""
COLUMNS = ("node_names", "leaf_switches", "slow_rank", "rank_step_time_median_s")


class NodesKnown:
    """The runs and the exclusions of a sweep (or the runs of a results file), read once."""

    def __init__(self, place: Path, directory: SweepDir | None) -> None:
        import analysis
        from analysis.derive.best import NEEDED
        from analysis.derive.nodes import health
        from analysis.derive.placement import placed
        from sweep.store.snapshot import read_state

        records = analysis.load(place, [*NEEDED, *COLUMNS])
        self._placed = placed(records)
        self._health = health(records).set_index("node")
        self._excluded: Mapping[str, str] = {} if directory is None else read_state(directory).excluded_nodes

    def elsewhere_s(self, record: Record) -> list[float]:
        """Step times of the other runs of its configuration, on sets of nodes without any of its own; none unless this
        run is slower than they are beyond their spread.
        """
        own = self._placed[self._placed["run_id"] == record.run_id]
        if own.empty or record.step_time_median_s is None:
            return []
        runs = self._placed[self._placed["configuration"] == own["configuration"].iloc[0]]
        names = set(record.node_names or ())
        other = runs[[names.isdisjoint(text.split(", ")) for text in runs["node_set"]]]
        step_s, ratio = record.step_time_median_s, float(own["ratio"].iloc[0])
        times = [step_s * ratio / value for value in other["ratio"].astype(float)]
        return times if clearly_slower(step_s, times) else []

    def findings(self, record: Record) -> list[str]:
        """A sentence per finding on each of its nodes."""
        return [text for node in dict.fromkeys(record.node_names or ()) for text in self._of(node)]

    def _of(self, node: str) -> Sequence[str]:
        texts = []
        if node in self._excluded:
            texts.append(f"{node} is excluded: {self._excluded[node]}")
        if node in self._health.index:
            texts += _of_runs(node, self._health.loc[node])
        return texts


def clearly_slower(step_s: float, others_s: Sequence[float]) -> bool:
    """Whether a run is slower than others by more than their spread: the t test of one further value."""
    from sweep.physics.statistics import student_two_sided

    if len(others_s) < 2 or step_s <= statistics.fmean(others_s):
        return False
    logs = [math.log(other) for other in others_s]
    error = statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs))
    t = (math.log(step_s) - statistics.fmean(logs)) / error if error > 0 else math.inf
    return student_two_sided(t, len(logs) - 1) / 2 < LEVEL


def _of_runs(node: str, row: pd.Series) -> list[str]:
    slow, faults, attempts = int(row["slow"]), int(row["faults"]), int(row["attempts"])
    of_all = f"of its {plural(attempts, 'attempt')}"
    texts = [f"{node} held the slow rank in {slow} {of_all}"] if slow else []
    return texts + ([f"{faults} {of_all} on {node} failed as nodes make them fail"] if faults else [])
