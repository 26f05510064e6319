"""The report as one HTML page: what is unfit first, the matrix of pairs, every check. No script, nothing loaded."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from html import escape

from sweep.checks.check import Json
from sweep.checks.rules import quantity
from sweep.doctor.report import Report, groups, nodes_text, summary

STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 2rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem; border-bottom: 1px solid #8884 }
.scroll { overflow-x: auto }
.matrix td, .matrix th { text-align: right; border: 1px solid #8883; font-variant-numeric: tabular-nums }
.matrix td.rate { color: #111 }
.verdict { font-weight: 600; white-space: nowrap }
.bad { color: #b3261e } .unsure { color: #8a5a00 } .fine { color: #1b6e2e }
@media (prefers-color-scheme: dark) { .bad { color: #ff8a80 } .unsure { color: #ffca6a } .fine { color: #7fd694 } }
"""
SLOW, FAST = (246, 178, 107), (221, 238, 250)
"""colours of the slowest and the fastest pair: both light, so that black text is legible"""


def page(report: Report) -> str:
    """The whole page."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.began_at))
    title = f"sweep doctor: {report.site}, {began}"
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(summary(report))}</p>", _excluded(report.exclude)]
    parts += [_matrix(report.pairs, operation) for operation in ("send", "all_reduce")]
    parts += ["<h2>Checks</h2>", _checks(report)]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(parts)}</body></html>'
    )


def _excluded(why: Mapping[str, str]) -> str:
    if not why:
        return "<p>No node has to be excluded.</p>"
    rows = "".join(f"<tr><th>{escape(node)}</th><td>{escape(text)}</td></tr>" for node, text in why.items())
    return f"<h2>Exclude</h2><table>{rows}</table>"


def _checks(report: Report) -> str:
    headings = ("tier", "check", "verdict", "nodes", "found", "expected", "remedy", "source")
    lines = []
    for one, nodes in groups(report.results):
        verdict = one.finding.verdict
        kind = "bad" if verdict.unfit else "fine" if verdict.value == "ok" else "unsure"
        cells = (one.finding.found, one.finding.expected, one.remedy, one.source)
        lines.append(
            f"<tr><td>{escape(one.tier)}</td><td>{escape(one.check)}</td>"
            f'<td class="verdict {kind}">{verdict}</td><td>{escape(nodes_text(nodes, len(report.nodes)))}</td>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            + "</tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in headings)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _matrix(pairs: Sequence[Mapping[str, Json]], operation: str) -> str:
    """Node against node. A pair that failed says so; one that was not measured is empty."""
    rates = rates_of_pairs(pairs, operation)
    nodes = sorted({node for pair in rates for node in pair}, key=_natural)
    if not nodes:
        return ""
    measured = [rate for rate in rates.values() if rate]
    head = "".join(f"<th>{escape(node)}</th>" for node in nodes)
    rows = []
    for one in nodes:
        cells = "".join(_cell(rates.get((min(one, two), max(one, two))), measured, same=one == two) for two in nodes)
        rows.append(f"<tr><th>{escape(one)}</th>{cells}</tr>")
    title = f"Pairs: {operation.replace('_', '-')}"
    note = "<p>Bus bandwidth. Blue is the fastest pair, orange the slowest; empty pairs were not measured.</p>"
    table = f'<table class="matrix"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<h2>{title}</h2>{note}<div class="scroll">{table}</div>'


def rates_of_pairs(pairs: Sequence[Mapping[str, Json]], operation: str) -> dict[tuple[str, str], float]:
    """(node, node) in order -> the best rate; 0: it failed."""
    found: dict[tuple[str, str], float] = {}
    for pair in pairs:
        nodes, rate = pair.get("nodes"), pair.get(operation)
        if isinstance(nodes, list) and len(nodes) == 2 and isinstance(rate, (int, float)):
            key = (min(map(str, nodes)), max(map(str, nodes)))
            found[key] = max(found.get(key, 0.0), float(rate))
    return found


def _cell(rate: float | None, measured: Sequence[float], *, same: bool) -> str:
    if same or rate is None:
        return "<td></td>"
    if not rate:
        return '<td class="verdict bad">failed</td>'
    lowest, most = min(measured), max(measured)
    share = (rate - lowest) / (most - lowest) if most > 1.05 * lowest else 1.0
    colour = ",".join(f"{slow + (fast - slow) * share:.0f}" for slow, fast in zip(SLOW, FAST, strict=True))
    return f'<td class="rate" style="background:rgb({colour})">{escape(quantity(rate, "B/s"))}</td>'


def _natural(name: str) -> tuple[str, int, str]:
    """n2 before n10."""
    digits = name[len(name.rstrip("0123456789")) :]
    return name.rstrip("0123456789"), int(digits or 0), name
