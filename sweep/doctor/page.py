"""The report as one HTML page: what is unfit first, the matrix of pairs, every check. No script, nothing loaded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from analysis.derive.best import natural
from analysis.report.page import environment
from sweep.checks.check import Json
from sweep.checks.rules import quantity
from sweep.doctor.report import Report, groups, nodes_text, summary

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
