"""Is each workload as fast as in a baseline: pass, fail, or too uncertain to say. Pure.

A workload is one configuration that both measured. It passes where the 95 % confidence interval of its change lies
above ``-within``, fails where it lies below, and is undecided between: more repeats narrow the interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.compare.comparison import Change, Comparison, Failing, RunPair

PASS, FAIL, UNDECIDED = "pass", "fail", "undecided"


@dataclass(frozen=True, kw_only=True)
class CheckedWorkload:
    """One workload against its baseline."""

    model: str
    nodes: int
    layout: Mapping[str, Any]
    run_id: str
    """in the sweep that is checked"""
    verdict: str
    """pass, fail or undecided"""
    baseline: float
    value: float | None
    """None: it failed"""
    change: Change | None
    reason: str = ""
    """why it failed to run"""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Every workload that the baseline has."""

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


def certificate(found: Comparison, within: float) -> Certificate:
    """A comparison of the baseline (A) with the sweep that is checked (B), for a tolerated slowdown (0.05: 5 %)."""
    pairs = [_checked(pair, within) for pair in found.runs]
    return Certificate(within=within, workloads=tuple(sorted([*pairs, *_failed(found.failing)], key=_place)))


def _checked(pair: RunPair, within: float) -> CheckedWorkload:
    verdict = UNDECIDED
    if pair.change.low >= -within:
        verdict = PASS
    elif pair.change.high < -within:
        verdict = FAIL
    return CheckedWorkload(
        model=pair.model,
        nodes=pair.nodes,
        layout=pair.layout,
        run_id=pair.run_b,
        verdict=verdict,
        baseline=pair.value_a,
        value=pair.value_b,
        change=pair.change,
    )


def _failed(failing: Sequence[Failing]) -> list[CheckedWorkload]:
    return [
        CheckedWorkload(
            model=one.model,
            nodes=one.nodes,
            layout=one.layout,
            run_id=one.run_b,
            verdict=FAIL,
            baseline=one.value_a,
            value=None,
            change=None,
            reason=f"{one.outcome} {one.message}".strip(),
        )
        for one in failing
    ]


def _place(one: CheckedWorkload) -> tuple[str, int, str]:
    return one.model, one.nodes, one.run_id
