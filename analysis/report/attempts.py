"""All attempts as a compact table (by column, texts as indices, few digits); and what failed, why, how often, and what
it cost, grouped by outcome and message.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.derive.best import CELL, model_order, on_cpu, succeeded
from analysis.metrics import METRICS, Metric
from analysis.tables import known, places_text
from sweep.physics.hardware import GIB
from sweep.records.schema import columns_by_name

MOST_ROWS = 10_000
"""More rows are too slow in a browser with little memory; the best of each cell and each kind of failure are kept"""

LONGEST_TEXT = 200
"""Characters of a message in the table; the section on failures has them in full"""

DIGITS = 5
"""Significant digits of a measured number"""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One column of the table."""

    name: str
    label: str
    factor: float = 1.0
    """shown value = factor * value"""
    shown_digits: int = 0
    """decimals that are printed; 0 for whole numbers and texts"""


FIELDS: tuple[Field, ...] = (
    Field(name="outcome", label="outcome"),
    Field(name="model", label="model"),
    Field(name="nodes", label="nodes"),
    Field(name="gpus", label="GPUs"),
    Field(name="dp", label="DP"),
    Field(name="tp", label="TP"),
    Field(name="pp", label="PP"),
    Field(name="cp", label="CP"),
    Field(name="ep", label="EP"),
    Field(name="zero", label="ZeRO"),
    Field(name="micro_batch_size", label="MBS"),
    Field(name="grad_accum", label="GAS"),
    Field(name="recompute", label="recompute"),
    Field(name="pp_schedule", label="schedule"),
    Field(name="sequence_length", label="sequence"),
    Field(name="global_batch_tokens", label="batch"),
    Field(name="tokens_per_second_per_gpu", label="tok/s/GPU", shown_digits=1),
    Field(name="mfu", label="MFU %", factor=100, shown_digits=1),
    Field(name="reported_mfu", label="MFU % (source)", factor=100, shown_digits=1),
    Field(name="step_time_median_s", label="step s", shown_digits=3),
    Field(name="peak_memory_bytes", label="memory GiB", factor=1 / GIB, shown_digits=2),
    Field(name="total_s", label="took s", shown_digits=1),
    Field(name="attempt", label="attempt"),
    Field(name="message", label="what happened"),
    Field(name="run_id", label="run"),
)
"""Columns in the order in which they are shown; one without a value is left out"""

DULL = ("cp", "ep", "recompute", "pp_schedule", "sequence_length", "global_batch_tokens", "attempt", "pp", "zero")
"""Columns that are left out where all rows have one value"""


def table_of(records: pd.DataFrame, metric: Metric, most: int = MOST_ROWS) -> dict[str, Any]:
    """JSON values: ``columns`` with their values, ``total`` rows and how many of them are ``shown``; and as text what
    is the ``same`` in all rows, and so no column.

    Values are numbers, null, or for texts indices into the column's ``levels``; those of models are ``ordered`` by
    size.
    """
    rows = _chosen(records, metric, most)
    fields = [field for field in _fields(metric) if _worth_showing(rows, field)]
    return {
        "total": len(records),
        "shown": len(rows),
        "metric": metric.column,
        "columns": [_column(rows, field) for field in fields],
        "same": {field.name: _same(rows, field) for field in FIELDS if field.name in DULL and field not in fields},
    }


def _fields(metric: Metric) -> list[Field]:
    """The fixed columns, and the ranking metric's own where it is not among them."""
    if metric.column in {field.name for field in FIELDS}:
        return list(FIELDS)
    own = Field(name=metric.column, label=metric.label, factor=metric.factor, shown_digits=1)
    at = next(i for i, field in enumerate(FIELDS) if field.name == "tokens_per_second_per_gpu")
    return [*FIELDS[:at], own, *FIELDS[at:]]


def _chosen(records: pd.DataFrame, metric: Metric, most: int) -> pd.DataFrame:
    """All rows in display order, or where they are too many, the first of each cell and of each failure."""
    rows = records.assign(_value=-metric.better * metric.of(records), _ok=succeeded(records))
    rows = rows.sort_values(["_ok", "_value"], ascending=[False, True], kind="stable")
    if len(rows) > most:
        kind = [rows["_ok"], *(rows[name] for name in CELL), rows["outcome"]]
        place = rows.groupby(kind, sort=False, dropna=False).cumcount()
        shown = place.sort_values(kind="stable").index[:most]
        rows = rows.loc[rows.index.isin(shown)]
    return rows.drop(columns=["_value", "_ok"])


def _worth_showing(rows: pd.DataFrame, field: Field) -> bool:
    if field.name not in rows or not rows[field.name].notna().any():
        return False
    return field.name not in DULL or rows[field.name].nunique(dropna=True) > 1


def _same(rows: pd.DataFrame, field: Field) -> str | None:
    """A column's one value with its label, or None where it has none."""
    values = list(rows[field.name].dropna().unique()) if field.name in rows else []
    if len(values) != 1:
        return None
    value = values[0] if isinstance(values[0], str) else f"{float(values[0]) * field.factor:,.{field.shown_digits}f}"
    return f"{field.label} {value}"


def _column(rows: pd.DataFrame, field: Field) -> dict[str, Any]:
    column, values = columns_by_name()[field.name], rows[field.name]
    meaning = column.meaning.partition(";")[0]  # what follows is of the stored value
    unit = f" ({column.unit})" if column.unit and field.factor == 1 else ""
    head: dict[str, Any] = {"name": field.name, "label": field.label, "title": meaning + unit}
    if column.type in ("int64", "double"):
        numbers = values.astype(float).to_numpy() * field.factor
        return {**head, "digits": field.shown_digits, "values": [_short(value) for value in numbers.tolist()]}
    words = values.where(values.notna(), None).map(lambda text: None if text is None else str(text)[:LONGEST_TEXT])
    codes, levels = pd.factorize(words)
    if field.name == "model":
        models = pd.Categorical(words, categories=model_order(rows, [str(level) for level in levels]))
        codes, levels = models.codes, models.categories
        head["ordered"] = True
    return {**head, "levels": [str(level) for level in levels], "values": [None if c < 0 else int(c) for c in codes]}


def _short(value: float) -> float | int | None:
    """A whole number as it is, another to ``DIGITS`` digits, null where it is not finite."""
    if not np.isfinite(value):
        return None
    if value == int(value):
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def omission_text(table: dict[str, Any]) -> str:
    """The page's note on rows that are missing from the table; empty where none are."""
    if table["shown"] == table["total"]:
        return ""
    return (
        f"{table['shown']:,} of {table['total']:,} attempts are in this table: the best of each model and node count "
        "and the first of each kind of failure. results.parquet has all of them."
    )


def metrics_for_axes(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Columns of the table for the scatter plot's y axis; ``better`` is 1 where more of it is better, else -1."""
    names = {column["name"] for column in table["columns"]} - {"peak_memory_bytes"}
    own = [metric for metric in METRICS.values() if metric.name == metric.column and metric.name in names]
    return [{"name": metric.name, "better": metric.better} for metric in own]


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
    each: pd.Series[float] = records["total_s"].astype(float) * records["gpus"].astype(float) / 3600
    hours = each.where(each >= 0).sum(min_count=1)
    if math.isnan(hours):
        return None
    span, many = ("hours", 1.0) if hours >= 1 else ("minutes", 60.0)
    return f"{'rank' if on_cpu(records) else 'GPU'}-{span}", float(hours * many)


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
