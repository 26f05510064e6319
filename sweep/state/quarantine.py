"""Which nodes later runs avoid, and why. Pure: reports on nodes in, nodes with reasons out.

One hang accuses a node but does not quarantine it: a configuration that hangs everywhere would take one node after
another out of service. Success of the same run without the node, or a second run that hangs there, confirms it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sweep.outcomes import Outcome
from sweep.state.events import RecordFacts

HANGS_OF_DIFFERENT_RUNS = 2
HANG_SHARE = 1 / 3
"""hangs quarantine a node where this many different runs hung, and this share of all runs that hung"""
SLOW_IN_RUNS = 3
SLOW_SHARE = 0.5
"""a node is slow where it held the slowest rank in this many different runs whose ranks have equal work, and in more
than this share of its runs of that kind"""

AT_ONCE = frozenset({Outcome.XID_HARDWARE, Outcome.NODE_FAIL})
"""outcomes that quarantine the node that they name"""


class ReportVerdict(Enum):
    """A report on a node, judged by the run's other attempts."""

    OPEN = "open"
    NODE = "node"
    """the run was ok without the node"""
    RUN = "run"
    """the run failed the same way on other nodes"""


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """One report against one node."""

    node: str
    time: float
    reason: str
    outcome: Outcome | None = None
    """of the reporting attempt; None where the pilot or the user reports, which needs no confirmation"""
    run_id: str = ""
    attempt: int = 0


@dataclass(frozen=True)
class MeasuredRun:
    """A run over several nodes, with equal work per rank, that was ok."""

    nodes: tuple[str, ...]
    time: float
    """unix seconds"""


@dataclass
class Ledger:
    """All reports on nodes."""

    reports: list[NodeReport] = field(default_factory=list)
    cleared_at: dict[str, float] = field(default_factory=dict)
    slow_in: dict[str, dict[str, float]] = field(default_factory=dict)
    """node -> run in which it held the slow rank -> when"""
    ok: dict[str, MeasuredRun] = field(default_factory=dict)
    """run -> where and when it was measured"""

    def measured(self, run_id: str, nodes: tuple[str, ...], slow_node: str | None, time: float) -> None:
        """Add a measured run. A run on a single node allows no comparison."""
        if len(set(nodes)) < 2:
            return
        self.ok[run_id] = MeasuredRun(nodes, time)
        if slow_node is not None:
            self.slow_in.setdefault(slow_node, {})[run_id] = time


def same_work(record: RecordFacts) -> bool:
    """Do all ranks of a run have the same work? Else the slowest of them implies nothing about its node.

    Stages of a pipeline differ by the logits, and experts by the tokens that are routed to them, in every run.
    """
    return record.pp == record.ep == 1


def quarantined(ledger: Ledger, verdict_on: Callable[[NodeReport], ReportVerdict]) -> dict[str, str]:
    """Node -> why it is avoided. ``verdict_on``: the verdict by the reporting run's other attempts."""
    found = dict(_slow(ledger))
    hangs: dict[str, dict[str, NodeReport]] = defaultdict(dict)
    for report in ledger.reports:
        if report.time <= ledger.cleared_at.get(report.node, float("-inf")):
            continue
        finding = ReportVerdict.NODE if report.outcome is None else verdict_on(report)
        if report.outcome is None or (report.outcome in AT_ONCE and finding is not ReportVerdict.RUN):
            found.setdefault(report.node, report.reason)
        elif finding is ReportVerdict.NODE:
            found.setdefault(report.node, f"{report.reason}; the run was ok without it")
        elif finding is ReportVerdict.OPEN:
            hangs[report.node].setdefault(report.run_id, report)
    return {**_hung(hangs), **found}


def _hung(hangs: Mapping[str, Mapping[str, NodeReport]]) -> dict[str, str]:
    """Nodes at which several runs hung, more than expected in a sweep in which runs hang everywhere."""
    runs = {run for by_run in hangs.values() for run in by_run}
    min_runs = max(HANGS_OF_DIFFERENT_RUNS, HANG_SHARE * len(runs))
    return {
        node: f"{len(by_run)} different runs hung there: {next(iter(by_run.values())).reason}"
        for node, by_run in hangs.items()
        if len(by_run) >= min_runs
    }


def _slow(ledger: Ledger) -> Mapping[str, str]:
    found = {}
    for node, slow in ledger.slow_in.items():
        since = ledger.cleared_at.get(node, float("-inf"))
        runs = [run for run, at in slow.items() if at > since]
        if len(runs) < SLOW_IN_RUNS:
            continue
        of_all = sum(at.time > since and node in at.nodes for at in ledger.ok.values())
        if len(runs) > SLOW_SHARE * of_all:
            share = f"{len(runs)} of its {of_all} runs over several nodes"
            found[node] = f"held the slowest rank in {share} whose ranks have equal work"
    return found
