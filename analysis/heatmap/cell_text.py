"""The text of a heatmap cell, as groups of short words that may be wrapped to its width."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.metrics import Metric, memory_text, number
from analysis.tables import items_of, known
from analysis.text_fit import Group, balanced

LEVELS = ("full", "brief", "value", "none")
"""Level of detail of a cell: the whole layout, value and memory, the value, nothing"""


def groups(cell: Mapping[str, Any], metric: Metric, shown: Metric, level: str) -> list[Group]:
    """The text of one cell: of a blank one its label, of a measured one first the headline.

    ``metric``: what cells are ranked by, its value in ``value``. ``shown``: what the headline shows, its value in
    ``shown``.
    """
    if level == "none":
        return []
    if cell["status"] != "best":
        return [str(cell["label"]).split()]
    found: list[Group] = [headline(cell, shown)]
    if level == "value":
        return found
    if shown.name != metric.name:
        found.append([metric.text(cell["value"])])
    if has_interval(cell):
        found.append([f"{number(float(cell[end]) * metric.factor)}{to}" for end, to in (("low", " to"), ("high", ""))])
    memory = cell.get("peak_memory_bytes")
    if known(memory) and metric.name != "peak_memory_bytes":
        found.append([memory_text(float(memory)).replace(" ", "\u00a0")])
    return found + layout(cell) if level == "full" else found


def headline(cell: Mapping[str, Any], shown: Metric) -> Group:
    """The value with its marks: ≈n for ties, ! for contradictory records, pred. where others are measured."""
    ties = items_of(cell.get("ties"))
    words = [f"{number(float(cell['shown']) * shown.factor)}{'%' if shown.suffix == '%' else ''}"]
    if ties:
        words.append(f"≈{len(ties)}")
    if known(cell.get("suspect")) and bool(cell["suspect"]):
        words.append("!")
    if cell.get("marked"):
        words.append("pred.")
    return [" ".join(words)]


def has_interval(cell: Mapping[Any, Any]) -> bool:
    """Whether it is predicted, with the ends between which 9 of 10 such predictions are meant to be."""
    predicted = known(cell.get("predicted")) and bool(cell["predicted"])  # nothing of it was measured
    return predicted and cell["high"] > cell["low"]


def layout(cell: Mapping[str, Any]) -> list[Group]:
    """DP TP PP, CP and EP where they are used; MBS GAS; ZeRO and recomputation; what else the table varies."""
    shown = [name for name in ("dp", "tp", "pp", "cp", "ep") if known(cell.get(name))]
    parallel = [f"{name.upper()}{int(cell[name])}" for name in shown if name not in ("cp", "ep") or cell[name] > 1]
    batch = [
        f"{short}{int(cell[name])}"
        for short, name in (("MBS", "micro_batch_size"), ("GAS", "grad_accum"))
        if known(cell.get(name))
    ]
    extra = [f"ZeRO{int(cell['zero'])}"] if known(cell.get("zero")) else []
    recompute = cell.get("recompute")
    if isinstance(recompute, str) and recompute != "none":
        extra.append({"full": "rc-full", "selective": "rc-sel"}.get(recompute, f"rc-{recompute}"))
    if has_bf16_states(cell):
        extra.append("bf16-states")
    return [group for group in (parallel, batch, extra, items_of(cell.get("swept"))) if group]


def has_bf16_states(cell: Mapping[str, Any]) -> bool:
    """Whether weights, gradients and optimizer states are in bf16, without fp32 master weights: another training."""
    text = cell.get("params_json")
    return isinstance(text, str) and json.loads(text).get("weights_dtype") == "bf16"


def lines(text: Sequence[Group], room_pt: float, size: float) -> list[str]:
    """The groups as lines: each group starts a new one."""
    return [line for group in text for line in balanced(group, room_pt, size)]


def percent_text(share: float | None) -> str:
    """A share as text: 41.2%; a dash where it is not known."""
    return f"{float(share):.1%}" if known(share) else "–"
