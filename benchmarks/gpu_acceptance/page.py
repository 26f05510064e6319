"""The results as one JSON document and one Markdown page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpu_acceptance.parts import PARTS

_MARKS = {True: "yes", False: "**no**", None: "not decided here"}


def write_pages(directory: Path, gpu: str) -> None:
    """results.json and results.md, of the parts that have run so far."""
    found = {part.name: _read(directory / f"{part.name}.json") for part in PARTS}
    ran = {name: result for name, result in found.items() if result is not None}
    (directory / "results.json").write_text(json.dumps({"gpu": gpu, "parts": ran}, indent=1))
    (directory / "results.md").write_text(page(ran, gpu))


def page(ran: dict[str, Any], gpu: str) -> str:
    """The page: a summary, then each part's checks and rows."""
    lines = [f"# Acceptance on one GPU: {gpu}", "", "Made by `python -m benchmarks.gpu_acceptance`.", ""]
    lines += ["| part | status | seconds | checks |", "|---|---|---|---|"]
    for part in PARTS:
        result = ran.get(part.name)
        if result is None:
            lines.append(f"| {part.title} | not run | | |")
            continue
        held = sum(check["holds"] is True for check in result["checks"])
        decided = sum(check["holds"] is not None for check in result["checks"])
        lines.append(f"| {part.title} | {result['status']} | {result['seconds']:g} | {held} of {decided} hold |")
    for part in PARTS:
        if part.name in ran:
            lines += ["", f"## {part.title}", "", *_part(ran[part.name])]
    return "\n".join(lines) + "\n"


def _part(result: dict[str, Any]) -> list[str]:
    lines = ["| check | holds | |", "|---|---|---|"]
    lines += [f"| {c['statement']} | {_MARKS[c['holds']]} | {_cell(c['detail'])} |" for c in result["checks"]]
    if result["facts"]:
        lines += ["", *(f"- {name}: {_cell(value)}" for name, value in result["facts"].items())]
    rows = result["rows"]
    if rows and "run_id" in rows[0]:
        lines += ["", *_runs(rows)]
    elif rows:
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines += ["", "| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
        lines += ["| " + " | ".join(_cell(row.get(name)) for name in names) + " |" for row in rows]
    return lines


def _runs(rows: list[dict[str, Any]]) -> list[str]:
    """Runs, fastest first: what was varied, speed, MFU, memory."""
    head = (
        "micro-batch",
        "recompute",
        "compile",
        "parameters",
        "outcome",
        "ms",
        "tokens/s/GPU",
        "MFU",
        "GiB",
        "predicted",
    )
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in sorted(rows, key=lambda row: -(row["tokens_per_second_per_gpu"] or 0)):
        params = ", ".join(f"{name}={value}" for name, value in row["params"].items())
        values = (
            *(row["micro_batch_size"], row["recompute"], row["compile"], params, row["outcome"]),
            _number(row["step_time_median_s"], 1e3, ".1f"),
            _number(row["tokens_per_second_per_gpu"], 1, ",.0f"),
            _number(row["mfu"], 1, ".1%"),
            _number(row["peak_memory_bytes"], 2**-30, ".2f"),
            _number(row["predicted_peak_bytes"], 2**-30, ".2f"),
        )
        lines.append("| " + " | ".join(map(_cell, values)) + " |")
    return lines


def _number(value: float | None, factor: float, form: str) -> str:
    return "" if value is None else format(value * factor, form)


def _cell(value: Any) -> str:
    text = f"{value:.1e}" if isinstance(value, float) and 0 < abs(value) < 1e-3 else str("" if value is None else value)
    return " ".join(text.split()).replace("|", "/")[:300]


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None
