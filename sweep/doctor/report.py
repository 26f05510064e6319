"""The report of a doctor run: values, text, JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from sweep.checks.check import CheckResult, Json, Verdict
from sweep.checks.fleet import to_exclude
from sweep.errors import first_names

ORDER = (
    *(Verdict.NO_ANSWER, Verdict.IMPOSSIBLE, Verdict.BELOW_FLOOR, Verdict.BELOW_MEDIAN, Verdict.DIFFERS),
    *(Verdict.UNKNOWN, Verdict.WARNING, Verdict.OK),
)
"""worst first"""
MOST_NODES = 6
"""names of nodes in a line of the table"""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a run found."""

    site: str
    gpu: str
    nodes: tuple[str, ...]
    """the nodes that were checked"""
    results: tuple[CheckResult, ...]
    began_at: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    """tier -> how long it took"""
    pairs: tuple[Mapping[str, Json], ...] = ()
    """each pair's rates"""
    rates: Mapping[str, Json] = field(default_factory=dict)
    """what was written to the file of measured rates"""
    written: tuple[str, ...] = ()
    """files of the run"""
    problem: str = ""
    """why the run did not complete"""

    @property
    def exclude(self) -> dict[str, str]:
        """Node -> why it must not be measured. The login node is none of them."""
        return {node: why for node, why in to_exclude(self.results).items() if node in self.nodes}

    @property
    def fit(self) -> bool:
        """Nothing is unfit, and everything that was asked for was done."""
        return not self.problem and not any(one.finding.verdict.unfit for one in self.results)

    def as_json(self) -> dict[str, Json]:
        """One JSON document."""
        return {**asdict(self), "fit": self.fit, "exclude": self.exclude, "results": rows_of(self)}


def rows_of(report: Report) -> list[dict[str, Json]]:
    """A row per check and node."""
    rows = []
    for one in report.results:
        row = {"check": one.check, "tier": one.tier, "node": one.node, **asdict(one.finding)}
        rows.append({**row, "remedy": one.remedy, "time": report.began_at})
    return rows


def groups(results: Sequence[CheckResult]) -> list[tuple[CheckResult, list[str]]]:
    """Equal findings together with their nodes, worst first, then in the order of checks."""
    places = {name: number for number, name in enumerate(dict.fromkeys(one.check for one in results))}
    same: dict[tuple[str, str, str, str], tuple[CheckResult, list[str]]] = {}
    for one in results:
        shown = one.finding.found if one.finding.verdict is not Verdict.OK or one.finding.number is None else ""
        key = (one.check, str(one.finding.verdict), shown, one.finding.expected)
        same.setdefault(key, (one, []))[1].append(one.node)
    return sorted(same.values(), key=lambda each: (ORDER.index(each[0].finding.verdict), places[each[0].check]))


def nodes_text(nodes: Sequence[str], every: int = 0) -> str:
    """n1, n2 and 6 more; "all 8" where these are all."""
    if 1 < len(nodes) == every:
        return f"all {every}"
    return first_names(sorted(nodes), MOST_NODES)


def summary(report: Report) -> str:
    """One line: what was checked and how it ended."""
    counts = Counter(str(one.finding.verdict) for one in report.results)
    words = ", ".join(f"{counts[str(v)]} {v}" for v in ORDER if counts[str(v)])
    took = ", ".join(f"{tier} {seconds:.1f} s" for tier, seconds in report.seconds.items())
    verdict = "fit" if report.fit else "unfit"
    text = f"{report.site}: {verdict}: {words} ({took})"
    return f"{text}; {report.problem}" if report.problem else text
