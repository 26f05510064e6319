"""The result of a sweep as plain values: the heatmap's cells, and the best configuration of each with its noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.confidence import verdict
from analysis.derive.neighbours import described, summary
from analysis.heatmap.cell_text import groups, layout
from analysis.heatmap.colours import Scale, coloured, ink_on
from analysis.metrics import Metric, memory_text, number
from analysis.tables import known
from sweep.contract import LAYOUT

if TYPE_CHECKING:
    import pandas as pd

SHADES = 48
"""Number of colours in the scale of the page's style sheet"""

Usage = Callable[[Mapping[str, Any]], Sequence[tuple[str, str]]]
"""A best configuration's record -> (what it is for, the text to copy), several"""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One cell of the heatmap."""

    headline: str
    lines: tuple[str, ...] = ()
    shade: int | None = None
    """of ``SHADES``; None where the cell is blank"""
    layout: str = ""
    """the whole layout, by the names of the grid"""
    anchor: str | None = None
    """id of the row with its details"""
    reason: str = ""
    """why it is blank"""


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The heatmap as a table."""

    nodes: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Tile, ...]], ...]
    """model, its cells by node count"""
    shown: Metric
    """gives the headline and colour of the cells"""
    shades: tuple[Mapping[str, str], ...]
    """``face`` and legible ``ink`` of each colour of the scale"""
    ticks: tuple[Mapping[str, Any], ...]
    """``place`` on the scale, 0 to 1, and ``text``; empty where nothing was measured"""
    scale_label: str


@dataclass(frozen=True, kw_only=True)
class Winner:
    """The best configuration of a cell, as text."""

    anchor: str
    model: str
    nodes: int
    gpus: str
    layout: str
    value: str
    interval: str
    """of its iterations and repeats; empty where it is unknown"""
    mfu: str
    memory: str
    measured: str
    """how often: runs and iterations"""
    verdict: str
    """clear, tie, alone, leads or unknown"""
    confidence: str
    """the verdict as a sentence"""
    suspect: bool
    """its numbers contradict something; the notes have what"""
    notes: tuple[str, ...]
    ties: tuple[str, ...]
    around: str
    """its neighbours, one step away on every axis, in a sentence"""
    neighbours: tuple[tuple[str, str], ...]
    """(axis and value, what is known of it)"""
    run_id: str
    usage: tuple[tuple[str, str], ...]


def heat_of(table: pd.DataFrame, metric: Metric) -> Heat:
    """The cells of ``analysis.derive.best.cells``, with the texts that the drawn heatmap has."""
    table, shown, scale = coloured(table, metric)
    nodes = tuple(sorted({int(n) for n in table["nodes"]}))
    rows: dict[str, dict[int, Tile]] = {}
    for at, row in enumerate(table.to_dict("records")):
        cell = {str(name): value for name, value in row.items()}
        tile = _tile(cell, anchor_of(at), metric, shown, scale)
        rows.setdefault(str(cell["model"]), {})[int(cell["nodes"])] = tile
    return Heat(
        nodes=nodes,
        rows=tuple((model, tuple(tiles[n] for n in nodes)) for model, tiles in rows.items()),
        shown=shown,
        shades=_shades(scale),
        ticks=tuple({"place": _place(scale, at), "text": text} for at, text in scale.ticks()) if scale else (),
        scale_label=scale.label if scale else shown.label,
    )


def winners_of(table: pd.DataFrame, metric: Metric, usage: Usage, around: pd.DataFrame) -> tuple[Winner, ...]:
    """The measured cells of ``analysis.derive.best.cells``, in its order. ``around``: their ``neighbours``."""
    found = []
    for at, row in enumerate(table.to_dict("records")):
        cell = {str(name): value for name, value in row.items()}
        if cell["status"] == "best":
            own = around[(around["model"] == cell["model"]) & (around["nodes"] == cell["nodes"])]
            found.append(_winner(cell, anchor_of(at), metric, usage, own))
    return tuple(found)


def anchor_of(position: int) -> str:
    """The id of a cell on the page: a model's name may hold any character, a position is safe."""
    return f"cell-{position}"


def _tile(cell: Mapping[str, Any], anchor: str, metric: Metric, shown: Metric, scale: Scale | None) -> Tile:
    if cell["status"] != "best" or scale is None:
        return Tile(headline=str(cell["label"]), reason=str(cell["reason"]))
    texts = [" ".join(words) for words in groups(cell, metric, shown, "full")]
    place = _place(scale, float(cell["relative"]))
    whole = " ".join(f"{name}={_plain(cell[name])}" for name in LAYOUT if known(cell.get(name)))
    shade = round(place * (SHADES - 1))
    return Tile(headline=texts[0], lines=tuple(texts[1:]), shade=shade, layout=whole, anchor=anchor)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _place(scale: Scale, value: float) -> float:
    """Position of a value on the scale, 0 to 1."""
    span = scale.high - scale.low
    return min(1.0, max(0.0, (value - scale.low) / span)) if span > 0 else 0.0


def _shades(scale: Scale | None) -> tuple[Mapping[str, str], ...]:
    if scale is None:
        return ()
    steps = np.linspace(scale.low, scale.high, SHADES)
    colours = [scale.colour(float(step)) for step in steps]
    return tuple({"face": "#" + "".join(f"{round(p * 255):02x}" for p in c[:3]), "ink": ink_on(c)} for c in colours)


def _winner(cell: Mapping[str, Any], anchor: str, metric: Metric, usage: Usage, around: pd.DataFrame) -> Winner:
    claim, sentence = verdict(cell, metric)
    memory = cell.get("peak_memory_bytes")
    return Winner(
        anchor=anchor,
        model=str(cell["model"]),
        nodes=int(cell["nodes"]),
        gpus=str(int(cell["gpus"])) if known(cell.get("gpus")) else "–",
        layout=" · ".join(" ".join(words) for words in layout(cell)) or "–",
        value=number(float(cell["value"]) * metric.factor),
        interval=_interval(cell, metric),
        mfu=_percent(cell.get("mfu") if known(cell.get("mfu")) else cell.get("reported_mfu")),
        memory=memory_text(float(memory)) if known(memory) else "–",
        measured=_measured(cell),
        verdict=claim,
        confidence=sentence,
        suspect=known(cell.get("suspect")) and bool(cell["suspect"]),
        notes=_texts(cell.get("notes")),
        ties=_texts(cell.get("ties")),
        around=summary(around),
        neighbours=tuple(_neighbour({str(k): v for k, v in row.items()}) for row in around.to_dict("records")),
        run_id=str(cell.get("run_id")),
        usage=tuple(usage(cell)),
    )


def _neighbour(row: Mapping[str, Any]) -> tuple[str, str]:
    further = {-1: "lower", 1: "higher", 0: "other"}[row["step"]]
    return f"{row['axis']} {row['value'] or further}", described(row)


def _interval(cell: Mapping[str, Any], metric: Metric) -> str:
    low, high = float(cell["low"]), float(cell["high"])
    if not high > low:
        return ""
    return f"{number(low * metric.factor)} to {number(high * metric.factor)}"


def _measured(cell: Mapping[str, Any]) -> str:
    runs = int(cell["repeats"])
    times = cell.get("step_times_s")
    iterations = int(np.size(times)) if times is not None and np.ndim(times) == 1 else 0
    if not iterations and known(cell.get("iterations")):
        iterations = int(cell["iterations"])
    text = f"{runs} run{'s' * (runs != 1)}"
    return f"{text} × {iterations} iteration{'s' * (iterations != 1)}" if iterations else text


def _texts(value: Any) -> tuple[str, ...]:
    """The items of a list column; empty where it is null."""
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple, np.ndarray)) else ()


def _percent(value: Any) -> str:
    return f"{float(value):.1%}" if known(value) else "–"
