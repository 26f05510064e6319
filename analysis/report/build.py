"""From records, plan and provenance to the page, one file: every number is computed before the template."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.derive.best import NEEDED, cells, completed, counting, failed, is_simulated, succeeded
from analysis.derive.blanks import missed_by_cell, missed_text
from analysis.derive.neighbours import neighbours
from analysis.figures import Drawn
from analysis.heatmap import caption
from analysis.metrics import DEFAULT_METRIC, metric_named, number
from analysis.report import surroundings
from analysis.report.answer import Usage, heat_of, winners_of
from analysis.report.attempts import FIELDS, failures_of, metrics_for_axes, omission_text, table_of, time_spent
from analysis.report.usage import usage_of
from analysis.tables import places_text
from sweep.contract import LAYOUT
from sweep.errors import Mistake, SweepError
from sweep.files import shipped_folder
from sweep.redaction import without_secrets

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Environment
    from matplotlib.figure import Figure

PILOTS_SHOWN = 50
OWN_COLUMNS = ("message", "evidence", "advice", "versions_json", "total_s", "pilot", "sweep_name")


@dataclass(frozen=True, kw_only=True)
class About:
    """What the records do not contain."""

    title: str
    sources: Sequence[str]
    """paths of what was read"""
    written: str
    """when, as readable text"""
    grid: str | None = None
    """the grid file's text"""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    node_time: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """pilot -> part -> node-seconds"""
    parts: Mapping[str, str] = field(default_factory=dict)
    """what the parts mean, in their order"""


def columns_needed() -> list[str]:
    """The columns to load for the page."""
    return list(dict.fromkeys([*NEEDED, *(f.name for f in FIELDS), *OWN_COLUMNS]))


def build(
    records: pd.DataFrame,
    plan: pd.DataFrame | None,
    about: About,
    *,
    metric: str = DEFAULT_METRIC,
    usage: Usage = usage_of,
    pictures: Sequence[Drawn] = (),
) -> str:
    """The page as HTML.

    ``usage``: turns a best configuration into texts to copy. Raises SweepError where there is neither a record nor a
    candidate, or for an unknown metric.
    """
    chosen = metric_named(metric)
    if records.empty and (plan is None or plan.empty):
        raise SweepError(Mistake("no records and no plan: there is nothing to report", remedy="run the sweep first"))
    records = completed(records, *columns_needed())
    table = cells(records, plan, metric)
    winners = winners_of(table, chosen, usage, neighbours(records, plan, chosen))
    attempts = table_of(records, chosen)
    measured = caption.measured_rows(counting(records), None)
    content = {
        "about": about,
        "metric": chosen,
        "heat": heat_of(table, chosen),
        "winners": winners,
        "confidence": _confidence(winners),
        "held_fixed": caption.held_fixed(measured, table[table["status"] == "best"], chosen),
        "simulated": is_simulated(measured),
        "progress": _progress(records, plan),
        "blanks": _blanks(table),
        "failures": failures_of(records),
        "pictures": pictures,
        "data_uri": data_uri,
        "alternative": alternative,
        "environment": surroundings.environment_of(records, about.provenance),
        "grid": without_secrets(about.grid) if about.grid else None,
        "reproduce": surroundings.how_to_reproduce(about.provenance),
        "missed": missed_text(missed_by_cell(plan, records)),
        "rejections": surroundings.rejections_of(plan),
        "omitted": omission_text(attempts),
        "node_time": _node_time(about),
    }
    data = {"attempts": attempts, "axes": metrics_for_axes(attempts), "layout": LAYOUT}
    return render(content, data)


def _progress(records: pd.DataFrame, plan: pd.DataFrame | None) -> dict[str, Any]:
    """How many runs are ok, failed and not yet measured, and the time of all attempts."""
    final = counting(records)
    ok, failures = int(succeeded(final).sum()), int(failed(final).sum())
    waiting, skipped = len(final) - ok - failures, 0
    planned = None if plan is None else plan[plan["status"] == "run"]
    if planned is not None and "run_id" in planned:
        missing = planned[~planned["run_id"].isin(final["run_id"].dropna())]
        skipped = int(missing["skipped"].notna().sum()) if "skipped" in missing else 0
        waiting += len(missing) - skipped
    return {
        "attempts": len(records),
        "ok": ok,
        "failed": failures,
        "waiting": waiting,
        "skipped": skipped,
        "rejected": 0 if plan is None else int((plan["status"] == "rejected").sum()),
        "suspect": int(final["suspect"].fillna(False).astype(bool).sum()),
        "spent": time_spent(records),
    }


def _node_time(about: About) -> list[tuple[str, float, list[float]]]:
    """(name, node-hours, percent by part) of all pilots together, then of those with the most node time."""
    largest = sorted(about.node_time.items(), key=lambda pilot: -sum(pilot[1].values()))
    whole = {part: sum(parts.get(part, 0.0) for _, parts in largest) for part in about.parts}
    rows = [("all pilots", whole), *largest[: PILOTS_SHOWN if len(largest) > 1 else 0]]
    sums = [sum(parts.values()) for _, parts in rows]
    return [
        (name, of_all / 3600, [100 * parts.get(part, 0.0) / of_all for part in about.parts])
        for (name, parts), of_all in zip(rows, sums, strict=True)
        if of_all > 0
    ]


def _blanks(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Blank cells and their reasons, equal reasons together."""
    blank = table[table["status"] != "best"].groupby("reason", sort=False)
    return [
        (str(reason), places_text(cells[["model", "nodes"]].itertuples(index=False), 12)) for reason, cells in blank
    ]


def _confidence(winners: Sequence[Mapping[str, Any]]) -> str:
    """One sentence on how many winners are clear of noise."""
    if not winners:
        return ""
    texts = {
        "clear": "{} ahead of all others beyond the spread between runs",
        "leads": "{} ahead by less, with too few runs to know that spread, or on a host with more work than cores",
        "tie": "{} within noise of another configuration",
        "alone": "{} without another configuration to compare with",
        "unknown": "{} ahead by a margin whose noise is not known",
    }
    counts = {verdict: sum(w["verdict"] == verdict for w in winners) for verdict in texts}
    parts = [texts[verdict].format(count) for verdict, count in counts.items() if count]
    return f"Of {len(winners)} best configuration{'s' * (len(winners) != 1)}: {', '.join(parts)}."


PNG_DPI = 200
PALETTE = 128
"""colours of a PNG: a figure has few, and is three times as large with 24 bits for each point"""


def data_uri(figure: Figure) -> str:
    """The figure as a data: URI, the same for the same figure. So embedded, it runs no script and loads nothing."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=PNG_DPI)
    with Image.open(whole) as image:
        image.convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"


def alternative(drawn: Drawn) -> str:
    """What a figure shows, in words: its caption and the labels of its axes."""
    shown = [a for a in drawn.figure.axes if a.get_xlabel() and a.get_ylabel()]
    labels = "; ".join(dict.fromkeys(f"{a.get_ylabel()} against {a.get_xlabel()}" for a in shown[:4]))
    return f"{drawn.caption} ({labels})" if labels else drawn.caption


TEMPLATE, STYLE, SCRIPT = "report.html.j2", "report.css.j2", "report.js.j2"


def render(content: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """The page. ``content``: template variables. ``data``: JSON values for the script.

    Every value is escaped by the template engine; the page's content security policy allows no script but the one
    here, load nothing, and send nothing.
    """
    from markupsafe import Markup

    templates = _environment()
    style = templates.get_template(STYLE).render(heat=content["heat"])
    script = templates.get_template(SCRIPT).render()
    policy = "; ".join(
        (
            "default-src 'none'",
            "img-src data:",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    return templates.get_template(TEMPLATE).render(
        **content,
        policy=policy,
        style=Markup(style),  # noqa: S704 (our own template; its only values are colours that we computed)
        script=Markup(script),  # noqa: S704 (our own template, without values)
        data=Markup(json_for_html(data)),  # noqa: S704 (escaped by json_for_html)
    )


def json_for_html(data: Mapping[str, Any]) -> str:
    """JSON that cannot end the script element around it, nor open a comment there."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(text: str) -> str:
    """The source expression by which a content security policy identifies an inline style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _environment() -> Environment:
    """The templates of pages; what they are given is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    found = Environment(
        loader=FileSystemLoader(shipped_folder("templates")),
        undefined=StrictUndefined,
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["thousands"] = lambda count: f"{count:,}"
    found.filters["short"] = number
    return found
