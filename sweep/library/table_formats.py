"""The best configuration of each cell as text: JSON, CSV and shell arguments for programs, Markdown for people."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from sweep.errors import plural
from sweep.files import csv_of
from sweep.library.winners import SIMULATED, Row, complete, layout_text
from sweep.stated import Stated

_MARKS = re.compile(r"[\\`*~<>|&]|\](?=[(\[])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def text(rows: Sequence[Row], form: str, metric: str) -> str:
    """The winners (``winners.winners``) in a format of ``winners.FORMS``."""
    if form == "markdown":
        heads, cells, under = best_table(rows, metric)
        sides = ["---" if head in ("model", "layout", "how sure") else "---:" for head in heads]
        lines = [" | ".join(heads), " | ".join(sides), *(" | ".join(map(_plain, line)) for line in cells)]
        under = [SIMULATED] * any(row["simulated"] for row in rows) + [_plain(text) for text in under]
        return "".join(f"| {line} |\n" for line in lines) + "".join(f"\n{text}\n" for text in under)
    rows = [complete(row, metric) for row in rows]
    if form == "flags":
        return _flags(rows, metric)
    if form == "json":
        return json.dumps(rows, indent=1) + "\n"
    return csv_of([{name: _cell(value) for name, value in row.items()} for row in rows])


def _cell(value: Any) -> Any:
    """A value in a table: a number with four digits, for people; mappings and lists as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(value)
    if not isinstance(value, float) or not math.isfinite(value) or value == 0:
        return value
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return round(value, digits) if digits else round(value)


def best_table(
    rows: Sequence[Row], metric: str, sure: Callable[[Row], str] | None = None
) -> tuple[list[str], list[list[str]], list[str]]:
    """Headings, lines of cells, and texts under the table, such as what a column would say in every line.

    ``sure``: a word for how sure a winner is; None: its sentence.
    """
    from analysis.heatmap.cell_text import percent_text
    from analysis.metrics import memory_text, metric_named, number

    ranked = metric_named(metric)
    heads = ["model", "nodes", "layout", ranked.label, "MFU", "memory", "margin", "sure" if sure else "how sure"]
    lines = []
    for row in rows:
        memory = "–" if row["peak_memory_bytes"] is None else memory_text(float(row["peak_memory_bytes"]))
        mfu = f"{percent_text(row['reported_mfu'])}*" if _is_reported(row) else percent_text(row["mfu"])
        rated = [number(row["value"] * ranked.factor), mfu, memory, percent_text(row["margin"])]
        last = sure(row) if sure else row["confidence"]
        lines.append([row["model"], str(row["nodes"]), layout_text(row), *rated, last])
    same = [at for at in range(4, len(heads)) if len({line[at] for line in lines}) == 1 < len(lines)]
    under = [f"{heads[at]}: {lines[0][at].replace('–', 'not known')} (all)" for at in same]
    if any(row["mfu"] is None and row["gpu"] == "cpu" for row in rows):
        under = [text for text in under if not text.startswith("MFU:")]
        under.append("MFU is blank on a CPU: it is relative to a GPU's peak FLOP/s.")
    left = [at for at in range(len(heads)) if at not in same]
    return [heads[at] for at in left], [[line[at] for at in left] for line in lines], under + _remarks(rows)


def _remarks(rows: Sequence[Row]) -> list[str]:
    """What must be said with the numbers: whose an MFU is, the notes, equal ones together, and what may be missed."""
    from analysis.derive.blanks import missed_text
    from analysis.tables import places_text

    found = ["*: the MFU that the source states; its tokens/s do not give one here"] * any(map(_is_reported, rows))
    for note in dict.fromkeys(note for row in rows for note in row["notes"] or ()):
        cells = [(row["model"], row["nodes"]) for row in rows if note in (row["notes"] or ())]
        found.append(f"{places_text(cells, most=len(cells))}: {note}")
    missed = missed_text({(row["model"], row["nodes"]): row["missed"] for row in rows if row["missed"]})
    return [*found, missed] if missed else found


def _is_reported(row: Row) -> bool:
    """Whether the only MFU is the one that an imported source reports."""
    return row["mfu"] is None and row["reported_mfu"] is not None


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
        verdict_text = [f"{metric} {row[metric]:.6g}", row["confidence"], plural(row["repeats"], "run")]
        verdict_text += [f"peak memory {memory_text(row['peak_memory_bytes'])}"] if row["peak_memory_bytes"] else []
        verdict_text += [f"MFU {row['mfu']:.1%}"] if row["mfu"] is not None else []
        verdict_text += [SIMULATED] * row["simulated"] + [Stated(note).line() for note in row["notes"]]
        model, gpu, run_id = (Stated(row[name]).line() for name in ("model", "gpu", "run_id"))
        place = f"{model} on {plural(row['nodes'], 'node')} of {row['gpus_per_node']} {gpu if row['gpu'] else 'GPUs'}"
        lines += [f"# {place}, {run_id}: {'; '.join(verdict_text)}"]
        lines += [" ".join([*environment, as_flags(row, row["params"])])]
    return "\n".join(lines) + "\n"
