"""What failed, why, how often, and what it cost: attempts grouped by outcome and message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.heatmap.cell_text import known

if TYPE_CHECKING:
    import pandas as pd

MOST_KINDS = 6
"""Most distinct messages shown per outcome"""
LONGEST = 1200
"""Maximum characters of a line of evidence"""
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Attempts that failed in the same way."""

    count: int
    message: str
    evidence: str
    advice: str
    places: str
    """models and node counts where it happened"""
    example: str
    """one run's id and attempt"""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """All attempts of one outcome."""

    outcome: str
    count: int
    gpu_hours: float | None
    kinds: tuple[Kind, ...]
    more_kinds: int


def failures_of(records: pd.DataFrame) -> tuple[Failure, ...]:
    """Failed attempts, the most frequent outcome first. Missing columns count as null."""
    failed = records[records["outcome"].notna() & (records["outcome"] != "ok")]
    parts = failed.groupby("outcome", sort=False)
    found = [_failure(str(outcome), rows) for outcome, rows in parts]
    return tuple(sorted(found, key=lambda failure: (-failure.count, failure.outcome)))


def gpu_hours(records: pd.DataFrame) -> float | None:
    """GPU-hours of the attempts' own time; None where no attempt has a duration."""
    if not {"total_s", "gpus"} <= set(records):
        return None
    seconds = (records["total_s"].astype(float) * records["gpus"].astype(float)).dropna()
    return float(seconds.sum()) / 3600 if len(seconds) else None


def _failure(outcome: str, rows: pd.DataFrame) -> Failure:
    messages = rows["message"].where(rows["message"].notna(), "").astype(str)
    similar = messages.str.slice(0, 400).map(lambda text: _CHANGING.sub("#", text))
    groups = sorted(rows.groupby(similar, sort=False), key=lambda group: -len(group[1]))
    return Failure(
        outcome=outcome,
        count=len(rows),
        gpu_hours=gpu_hours(rows),
        kinds=tuple(_kind(part) for _, part in groups[:MOST_KINDS]),
        more_kinds=max(0, len(groups) - MOST_KINDS),
    )


def _kind(rows: pd.DataFrame) -> Kind:
    proven = rows[rows["evidence"].notna()]
    example = (proven if len(proven) else rows).iloc[0]
    attempt = f".{int(example['attempt'])}" if known(example.get("attempt")) else ""
    return Kind(
        count=len(rows),
        message=_text(example, "message"),
        evidence=_text(example, "evidence"),
        advice=_text(example, "advice"),
        places=_places(rows),
        example=f"{example.get('run_id')}{attempt}",
    )


def _text(row: pd.Series[Any], name: str) -> str:
    value = row.get(name)
    text = str(value) if known(value) else ""
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"


def _places(rows: pd.DataFrame) -> str:
    """Models and node counts, the first few by name."""
    models = [str(model) for model in dict.fromkeys(rows["model"].dropna())]
    nodes = sorted({int(n) for n in rows["nodes"].dropna()})
    names = ", ".join(models[:6]) + (f" and {len(models) - 6} more models" if len(models) > 6 else "")
    return f"{names} on {', '.join(map(str, nodes))} node{'s' * (nodes != [1])}"
