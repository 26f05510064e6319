"""The result of a sweep as plain values: the heatmap's cells, and the best configuration of each with its noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.confidence import verdict
from analysis.heatmap.cell_text import groups, layout, percent_text
from analysis.heatmap.colours import Scale, coloured, ink_on
from analysis.metrics import Metric, memory_text, number
from analysis.tables import as_rows, items_of, known, layout_names
from sweep.errors import plural

if TYPE_CHECKING:
    import pandas as pd


SHADES = 48
"""Number of colours in the scale of the page's style sheet"""

Usage = Callable[[Mapping[str, Any]], Sequence[tuple[str, str]]]
"""A best configuration's record -> (what it is for, the text to copy), several"""


def heat_of(table: pd.DataFrame, metric: Metric) -> dict[str, Any]:
    """The cells of ``analysis.derive.best.cells`` as a table, with the texts that the drawn heatmap has.

    ``rows``: model and its tiles by ``nodes``: of a blank one ``headline`` and ``reason``, else also ``anchor``, the id
    of the row with its details by its position (a model's name may hold any character), ``shade``, of ``SHADES``, and
    the whole ``layout`` by the names of the grid. ``shown``: the metric of headline and colour; ``shades``: face and
    legible ink of each colour of the scale; ``ticks``: place on the scale, 0 to 1, and text.
    """
    table, shown, scale = coloured(table, metric)
    steps = np.linspace(scale.low, scale.high, SHADES).tolist() if scale else []
    colours = [scale.colour(step) for step in steps] if scale else []
    nodes = tuple(sorted({int(n) for n in table["nodes"]}))
    rows: dict[str, dict[int, Mapping[str, Any]]] = {}
    for at, cell in enumerate(as_rows(table)):
        tile = _tile(cell, f"cell-{at}", metric, shown, scale)
        rows.setdefault(str(cell["model"]), {})[int(cell["nodes"])] = tile
    return {
        "nodes": nodes,
        "rows": [(model, [tiles[n] for n in nodes]) for model, tiles in rows.items()],
        "shown": shown,
        "shades": [{"face": "#" + "".join(f"{round(p * 255):02x}" for p in c[:3]), "ink": ink_on(c)} for c in colours],
        "ticks": [{"place": scale.place(at), "text": text} for at, text in scale.ticks()] if scale else [],
        "scale_label": scale.label if scale else shown.label,
    }


def winners_of(
    table: pd.DataFrame, metric: Metric, usage: Usage, around: Mapping[tuple[Any, ...], str]
) -> list[dict[str, Any]]:
    """The measured cells of ``analysis.derive.best.cells`` as texts, in its order. ``around``: their ``neighbours``."""
    return [
        _winner(cell, f"cell-{at}", metric, usage, around[cell["model"], cell["nodes"]])
        for at, cell in enumerate(as_rows(table))
        if cell["status"] == "best"
    ]


def _tile(cell: Mapping[str, Any], anchor: str, metric: Metric, shown: Metric, scale: Scale | None) -> dict[str, Any]:
    if cell["status"] != "best" or scale is None:
        return {"anchor": None, "headline": str(cell["label"]), "reason": str(cell["reason"])}
    texts = [" ".join(words) for words in groups(cell, metric, shown, "full")]
    whole = " ".join(f"{name}={_plain(cell[name])}" for name in layout_names(cell) if known(cell.get(name)))
    shade = round(scale.place(float(cell["relative"])) * (SHADES - 1))
    return {"anchor": anchor, "headline": texts[0], "lines": texts[1:], "shade": shade, "layout": whole}


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _winner(cell: Mapping[str, Any], anchor: str, metric: Metric, usage: Usage, around: str) -> dict[str, Any]:
    claim, sentence = verdict(cell, metric)
    memory = cell.get("peak_memory_bytes")
    low, high = (number(float(cell[end]) * metric.factor) for end in ("low", "high"))
    return {
        "anchor": anchor,
        "model": str(cell["model"]),
        "nodes": int(cell["nodes"]),
        "gpus": str(int(cell["gpus"])) if known(cell.get("gpus")) else "–",
        "layout": " · ".join(" ".join(words) for words in layout(cell)) or "–",
        "value": number(float(cell["value"]) * metric.factor),
        "interval": f"{low} to {high}" if float(cell["high"]) > float(cell["low"]) else "",
        "mfu": percent_text(cell.get("mfu") if known(cell.get("mfu")) else cell.get("reported_mfu")),
        "memory": memory_text(float(memory)) if known(memory) else "–",
        "measured": _measured(cell),
        "verdict": claim,
        "confidence": sentence,
        "suspect": known(cell.get("suspect")) and bool(cell["suspect"]),
        "notes": items_of(cell.get("notes")),
        "ties": items_of(cell.get("ties")),
        "around": around,
        "run_id": str(cell.get("run_id")),
        "usage": tuple(usage(cell)),
    }


def _measured(cell: Mapping[str, Any]) -> str:
    iterations = len(items_of(cell.get("step_times_s")))
    if not iterations and known(cell.get("iterations")):
        iterations = int(cell["iterations"])
    text = plural(int(cell["repeats"]), "run")
    return f"{text} × {plural(iterations, 'iteration')}" if iterations else text
