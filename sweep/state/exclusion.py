"""Which nodes later runs avoid, and why. Pure: reports on nodes in, nodes with reasons out.

One hang accuses a node but does not exclude it: a configuration that hangs everywhere would take one node after
another out of service. Success of the same run without the node, or a second run that hangs there, confirms it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sweep.outcomes import Outcome
from sweep.state.events import RecordFacts

HANGS_OF_DIFFERENT_RUNS = 2
HANG_SHARE = 1 / 3
"""hangs exclude a node where this many different runs hung, and this share of all runs that hung"""
SLOW_IN_RUNS = 3
SLOW_SHARE = 0.5
"""a node is slow where it held the slowest rank in this many different runs whose ranks have equal work, and in more
than this share of its runs of that kind"""
MOST_BY_CHANCE = 0.05
"""and where this would be rarer than that if any node of a run were as likely to hold its slowest rank, as on a host
that others use: 3 runs of 3 on 3 nodes, but 5 of 5 on 2"""

AT_ONCE = frozenset({Outcome.XID_HARDWARE, Outcome.NODE_FAIL})
"""outcomes that exclude the node that they name"""


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
    fit_at: dict[str, float] = field(default_factory=dict)
    """node -> when a check of its speed found it fit"""
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


def excluded(ledger: Ledger, verdict_on: Callable[[NodeReport], ReportVerdict]) -> dict[str, str]:
    """Node -> why it is avoided. ``verdict_on``: the verdict by the reporting run's other attempts."""
    found: dict[str, str] = {}
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
    # Nodes at which several runs hung, more than expected in a sweep in which runs hang everywhere
    runs = {run for by_run in hangs.values() for run in by_run}
    min_runs = max(HANGS_OF_DIFFERENT_RUNS, HANG_SHARE * len(runs))
    hung = {
        node: f"{len(by_run)} different runs hung there: {next(iter(by_run.values())).reason}"
        for node, by_run in hangs.items()
        if len(by_run) >= min_runs
    }
    return {**hung, **slow(ledger), **found}


def slow(ledger: Ledger) -> Mapping[str, str]:
    """Node -> why, by runs alone: a suspicion that a check of its speed confirms or refutes, where there can be one."""
    found = {}
    for node, slow_in in ledger.slow_in.items():
        since = max(times.get(node, float("-inf")) for times in (ledger.cleared_at, ledger.fit_at))
        runs = [run for run, at in slow_in.items() if at > since]
        if len(runs) < SLOW_IN_RUNS:
            continue
        of_all = [len(set(at.nodes)) for at in ledger.ok.values() if at.time > since and node in at.nodes]
        if len(runs) > SLOW_SHARE * len(of_all) and by_chance(len(runs), of_all) <= MOST_BY_CHANCE:
            share = f"{len(runs)} of its {len(of_all)} runs over several nodes"
            found[node] = f"held the slowest rank in {share} whose ranks have equal work"
    return found


def by_chance(slowest: int, nodes: Sequence[int]) -> float:
    """At most the probability to hold the slowest rank in so many runs, or more, if any node is as likely to.

    ``nodes``: the number of nodes of each run; of one that has since been measured elsewhere it is not known, and
    taken for that of the others. Chernoff's bound (Hoeffding 1963, theorem 1); 1 up to the expectation.
    """
    count = max(len(nodes), slowest)
    expected = sum(1 / one for one in nodes) / len(nodes) if nodes else 1 / 2
    share = max(slowest / count, expected)
    apart = share * math.log(share / expected)
    if share < 1:
        apart += (1 - share) * math.log((1 - share) / (1 - expected))
    return math.exp(-count * apart)
