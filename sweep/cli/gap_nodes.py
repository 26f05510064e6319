"""What checks and other runs of a sweep say of the nodes of one run: for `sweep explain --gap`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.checks.check import Json
from sweep.cli.progress_text import plural
from sweep.errors import SweepError
from sweep.files import json_of

if TYPE_CHECKING:
    import pandas as pd

    from sweep.records.schema import Record
    from sweep.store.directory import SweepDir

DOCTOR = Path("doctor")
"""where `sweep doctor` leaves its reports unless `--dir` names another place"""
LEVEL = 0.01
"""The chance of a false claim: that of `sweep compare`"""
COLUMNS = ("node_names", "leaf_switches", "slow_rank", "rank_step_time_median_s")


class NodesKnown:
    """The runs and the exclusions of a sweep (or the runs of a results file), and the doctor's last report on each
    node, read once.
    """

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
        self._unfit = _unfit_by_doctor(DOCTOR)

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
        if node in self._unfit:
            texts.append(f"`sweep doctor` found on {node}: {self._unfit[node]}")
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


def _unfit_by_doctor(directory: Path) -> dict[str, str]:
    """Node -> what was unfit, by the last report that has the node."""
    unfit: dict[str, str] = {}
    for report in earlier(directory):
        nodes, excluded = report.get("nodes"), report.get("exclude")
        if isinstance(nodes, list) and isinstance(excluded, dict):
            for node in map(str, nodes):
                unfit.pop(node, None)
                if node in excluded:
                    unfit[node] = str(excluded[node])
    return unfit


def earlier(directory: Path) -> list[dict[str, Json]]:
    """Reports of the runs in this directory, oldest first."""
    reports = []
    for path in sorted(directory.glob("*/report.json")):
        try:
            reports.append(json_of(path.read_text(), path))
        except (OSError, ValueError, SweepError):
            continue
    return reports
