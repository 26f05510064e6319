"""What failed, why, how often, and what it cost: attempts grouped by outcome and message."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from analysis.derive.cost import gpu_hours, unit_of
from analysis.tables import known, places_text

if TYPE_CHECKING:
    import pandas as pd

MOST_KINDS = 6
"""Most distinct messages shown per outcome"""
LONGEST = 1200
"""Maximum characters of a line of evidence"""
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*")


def failures_of(records: pd.DataFrame) -> list[dict[str, Any]]:
    """Failed attempts but those that a user cancelled, the most frequent outcome first. Missing columns are null.

    Of each outcome: ``count``, ``spent`` (as ``time_spent``), its most frequent ``kinds`` of messages, each with one
    run as an example, and how many ``more_kinds`` there are.
    """
    failed = records[records["outcome"].notna() & ~records["outcome"].isin(["ok", "cancelled"])]
    parts = failed.groupby("outcome", sort=False)
    found = [_failure(str(outcome), rows) for outcome, rows in parts]
    return sorted(found, key=lambda failure: (-failure["count"], failure["outcome"]))


def time_spent(records: pd.DataFrame) -> tuple[str, float] | None:
    """(unit, amount) of the attempts' time on their GPUs; None where no attempt has one."""
    hours = gpu_hours(records).sum(min_count=1)
    if math.isnan(hours):
        return None
    unit, many = unit_of(records, hours)
    return unit, float(hours * many)


def _failure(outcome: str, rows: pd.DataFrame) -> dict[str, Any]:
    messages = rows["message"].where(rows["message"].notna(), "").astype(str)
    similar = messages.str.slice(0, 400).map(lambda text: _CHANGING.sub("#", text))
    groups = sorted(rows.groupby(similar, sort=False), key=lambda group: -len(group[1]))
    return {
        "outcome": outcome,
        "count": len(rows),
        "spent": time_spent(rows),
        "kinds": [_kind(part) for _, part in groups[:MOST_KINDS]],
        "more_kinds": max(0, len(groups) - MOST_KINDS),
    }


def _kind(rows: pd.DataFrame) -> dict[str, Any]:
    proven = rows[rows["evidence"].notna()]
    example = (proven if len(proven) else rows).iloc[0]
    cells = rows[["model", "nodes"]].dropna().itertuples(index=False)
    attempt = f".{int(example['attempt'])}" if known(example.get("attempt")) else ""
    return {
        "count": len(rows),
        "message": _text(example, "message"),
        "evidence": _text(example, "evidence"),
        "advice": _text(example, "advice"),
        "places": places_text(cells, most=6),
        "example": f"{example.get('run_id')}{attempt}",
    }


def _text(row: pd.Series[Any], name: str) -> str:
    value = row.get(name)
    text = str(value) if known(value) else ""
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"
