"""The best configuration of each cell as text: JSON, CSV and shell arguments for programs, Markdown for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from sweep.files import csv_of
from sweep.library.winners import SIMULATED, Row, layout_text
from sweep.stated import Stated

_MARKS = re.compile(r"[\\`*~<>|&]|\](?=[(\[])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def text(rows: Sequence[Row], form: str, metric: str) -> str:
    """The winners (``winners.complete``) in a format of ``winners.FORMS``."""
    if form == "flags":
        return _flags(rows, metric)
    if form == "json":
        return json.dumps(rows, indent=1) + "\n"
    if form == "csv":
        return csv_of([{name: _cell(value) for name, value in row.items()} for row in rows])
    return _markdown(rows, metric)


def _cell(value: Any) -> Any:
    """A value in a table: a number with four digits, for people; mappings and lists as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return value
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return round(value, digits) if digits else round(value)


def _markdown(rows: Sequence[Row], metric: str) -> str:
    """The table of `sweep best`: numbers right-aligned; what holds for some rows is a line under it."""
    from analysis.heatmap.cell_text import percent_text
    from analysis.metrics import memory_text, metric_named, number

    ranked = metric_named(metric)
    heads = ("model", "nodes", "layout", ranked.label, "MFU", "memory", "margin", "how sure")
    lines = [" | ".join(heads), "--- | ---: | --- | ---: | ---: | ---: | ---: | ---"]
    for row in rows:
        memory = "–" if row["peak_memory_bytes"] is None else memory_text(row["peak_memory_bytes"])
        rated = (number(row[metric] * ranked.factor), percent_text(row["mfu"]), memory, percent_text(row["margin"]))
        cells = (row["model"], str(row["nodes"]), layout_text(row), *rated, row["confidence"])
        lines.append(" | ".join(map(_plain, cells)))
    notes = dict.fromkeys(note for row in rows for note in row["notes"])
    under = [SIMULATED] * any(row["simulated"] for row in rows) + [_plain(note) for note in notes]
    return "".join(f"| {line} |\n" for line in lines) + "".join(f"\n{text}\n" for text in under)


def _plain(text: str) -> str:
    """A text as a cell of a Markdown table: neither markup nor HTML, and on one line."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def _flags(rows: Sequence[Row], metric: str) -> str:
    """One line of shell arguments per cell, after comments that name the cell and judge its value."""
    from analysis.metrics import memory_text
    from analysis.report.usage import as_flags
    from sweep.library.trainer_format import assignment

    lines = []
    for row in rows:
        environment = [assignment(name, str(value)) for name, value in row["env"].items()]
        verdict_text = [f"{metric} {row[metric]:.6g}", row["confidence"], _plural(row["repeats"], "run")]
        verdict_text += [f"peak memory {memory_text(row['peak_memory_bytes'])}"] if row["peak_memory_bytes"] else []
        verdict_text += [f"MFU {row['mfu']:.1%}"] if row["mfu"] is not None else []
        verdict_text += [SIMULATED] * row["simulated"] + [Stated(note).line() for note in row["notes"]]
        model, gpu, run_id = (Stated(row[name]).line() for name in ("model", "gpu", "run_id"))
        place = f"{model} on {_plural(row['nodes'], 'node')} of {row['gpus_per_node']} {gpu if row['gpu'] else 'GPUs'}"
        lines += [f"# {place}, {run_id}: {'; '.join(verdict_text)}"]
        lines += [" ".join([*environment, as_flags(row, row["params"])])]
    return "\n".join(lines) + "\n"


def _plural(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
