"""Is each workload of a suite as fast as in a baseline: pass, fail, or not known. Pure.

A workload is one planned configuration with its repeats. It fails where any repeat failed. Else it passes where the
95 % confidence interval of its change lies above ``-within``, fails where it lies below, and is undecided between:
more repeats narrow the interval. What was not measured, or has no baseline, is undecided too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from analysis.compare.comparison import Change, Comparison, RunPair
from analysis.compare.sides import SAME, key_of, plain_layout
from analysis.derive.best import completed, counting, succeeded

if TYPE_CHECKING:
    import pandas as pd

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"
CONFIGURATION = (*SAME, "dtype", "compile", "params", "env")
"""The plan's columns by which workloads differ"""


@dataclass(frozen=True, kw_only=True)
class CheckedWorkload:
    """One workload against its baseline."""

    model: str
    nodes: int
    layout: Mapping[str, Any]
    verdict: str
    """pass, fail or undecided"""
    baseline: float | None = None
    value: float | None = None
    change: Change | None = None
    """None: it failed, or one side has no value"""
    reason: str = ""
    """why there is no change"""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Every workload of the suite."""

    within: float
    workloads: tuple[CheckedWorkload, ...]

    @property
    def passed(self) -> bool:
        """Whether there is a workload, and each passes."""
        return bool(self.workloads) and all(one.verdict == PASS for one in self.workloads)

    def count(self, verdict: str) -> int:
        """How many have that verdict."""
        return sum(one.verdict == verdict for one in self.workloads)

    def document(self) -> dict[str, Any]:
        """JSON values."""
        return {"within": self.within, "workloads": [asdict(one) for one in self.workloads]}


def certificate(
    planned: pd.DataFrame, records: pd.DataFrame, comparison: Comparison | None, within: float
) -> Certificate:
    """The suite's plan (rows to run, with ``CONFIGURATION``), its records, and the comparison of the baseline (A) with
    these (B); None where nothing was measured. ``within``: the tolerated slowdown (0.05: 5 %).
    """
    ended = counting(completed(records))
    failed = {
        str(run): f"{outcome} {message or ''}".strip()
        for run, outcome, message in ended.loc[~succeeded(ended), ["run_id", "outcome", "message"]].to_numpy()
    }
    measured = set(ended.loc[succeeded(ended), "run_id"].astype(str))
    pairs = {} if comparison is None else {pair.run_b: pair for pair in comparison.runs}
    workloads: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in planned.to_dict("records"):
        named = {str(name): value for name, value in row.items()}
        workloads.setdefault(key_of(named, CONFIGURATION), []).append(named)
    checked = [_checked(rows, pairs, failed, measured, within) for rows in workloads.values()]
    return Certificate(within=within, workloads=tuple(sorted(checked, key=lambda one: (one.model, one.nodes))))


def _checked(
    repeats: Sequence[Mapping[str, Any]],
    pairs: Mapping[str, RunPair],
    failed: Mapping[str, str],
    measured: set[str],
    within: float,
) -> CheckedWorkload:
    runs = [str(row["run_id"]) for row in repeats]
    pair = next((pairs[run] for run in runs if run in pairs), None)
    reasons = [failed[run] for run in runs if run in failed]
    verdict, reason = UNDECIDED, ""
    if reasons:
        verdict, reason = FAIL, f"{len(reasons)} of {len(runs)} failed: {reasons[0]}"
    elif pair is None:
        reason = "not in the baseline" if any(run in measured for run in runs) else "not measured"
    elif any(run not in measured for run in runs):
        reason = f"{sum(run not in measured for run in runs)} of {len(runs)} not measured"
    elif pair.change.low >= -within:
        verdict = PASS
    elif pair.change.high < -within:
        verdict = FAIL
    first = repeats[0]
    return CheckedWorkload(
        model=str(first["model"]),
        nodes=int(first["nodes"]),
        layout=plain_layout(first),
        verdict=verdict,
        baseline=pair.value_a if pair is not None else None,
        value=pair.value_b if pair is not None else None,
        change=pair.change if pair is not None and not reason else None,
        reason=reason,
    )
