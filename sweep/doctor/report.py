"""The report of a doctor run: values, text, JSON, a table.

The report as one HTML page: what is unfit first, the matrix of pairs, every check. No script, nothing loaded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from analysis.derive.best import natural
from analysis.report.page import environment
from sweep.checks.check import CheckResult, Json, Verdict
from sweep.checks.fleet import to_exclude
from sweep.checks.rules import quantity

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
    """each pair's rates, for the matrix"""
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
    """A row per check and node: also the rows of the Parquet file."""
    rows = []
    for one in report.results:
        values = asdict(one.finding)
        values["verdict"] = str(one.finding.verdict)
        row = {"check": one.check, "tier": one.tier, "node": one.node, **values}
        rows.append({**row, "remedy": one.remedy, "source": one.source, "time": report.began_at})
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
    nodes = sorted(nodes)
    shown = ", ".join(nodes[:MOST_NODES])
    return shown + (f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else "")


def summary(report: Report) -> str:
    """One line: what was checked and how it ended."""
    counts = Counter(str(one.finding.verdict) for one in report.results)
    words = ", ".join(f"{counts[str(v)]} {v}" for v in ORDER if counts[str(v)])
    took = ", ".join(f"{tier} {seconds:.1f} s" for tier, seconds in report.seconds.items())
    verdict = "fit" if report.fit else "unfit"
    text = f"{report.site}: {verdict}: {words} ({took})"
    return f"{text}; {report.problem}" if report.problem else text


SLOW, FAST = (246, 178, 107), (221, 238, 250)
"""colours of the slowest and the fastest pair: both light, so that black text is legible"""


def page(report: Report) -> str:
    """The whole page."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.began_at))
    matrices = [(name.replace("_", "-"), *_matrix(report.pairs, name)) for name in ("send", "all_reduce")]
    return (
        environment()
        .get_template("doctor.html.j2")
        .render(
            title=f"sweep doctor: {report.site}, {began}",
            summary=summary(report),
            exclude=report.exclude,
            matrices=[one for one in matrices if one[1]],
            checks=[(one, nodes_text(nodes, len(report.nodes))) for one, nodes in groups(report.results)],
        )
    )


def _matrix(
    pairs: Sequence[Mapping[str, Json]], operation: str
) -> tuple[list[str], list[tuple[str, list[tuple[str, str]]]]]:
    """(nodes, each with a (text, colour) per node): a pair that failed has no colour, one not measured has neither."""
    rates = rates_of_pairs(pairs, operation)
    nodes = sorted({node for pair in rates for node in pair}, key=natural)
    measured = [rate for rate in rates.values() if rate]
    cells = {
        pair: (quantity(rate, "B/s"), _colour(rate, measured)) if rate else ("failed", "")
        for pair, rate in rates.items()
    }
    return nodes, [(one, [cells.get((min(one, two), max(one, two)), ("", "")) for two in nodes]) for one in nodes]


def rates_of_pairs(pairs: Sequence[Mapping[str, Json]], operation: str) -> dict[tuple[str, str], float]:
    """(node, node) in order -> the best rate; 0: it failed."""
    found: dict[tuple[str, str], float] = {}
    for pair in pairs:
        nodes, rate = pair.get("nodes"), pair.get(operation)
        if isinstance(nodes, list) and len(nodes) == 2 and isinstance(rate, (int, float)):
            key = (min(map(str, nodes)), max(map(str, nodes)))
            found[key] = max(found.get(key, 0.0), float(rate))
    return found


def _colour(rate: float, measured: Sequence[float]) -> str:
    lowest, most = min(measured), max(measured)
    share = (rate - lowest) / (most - lowest) if most > 1.05 * lowest else 1.0
    return ",".join(f"{slow + (fast - slow) * share:.0f}" for slow, fast in zip(SLOW, FAST, strict=True))
