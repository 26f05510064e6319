"""A plan in numbers: counts by reason, runs per cell, and a rough guess of what it will spend."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweep.planning.order import ASSUMED_RUN_S

COMMONEST = 10
"""reasons with their numbers that a summary shows per rule"""


def summarise(name: str, table: Any) -> dict[str, Any]:
    """The summary of a plan's table as JSON values."""
    is_run = pc.is_valid(table.column("run_id"))
    runs = table.filter(is_run)
    seconds = pc.fill_null(runs.column("predicted_s"), ASSUMED_RUN_S)
    node_seconds = pc.multiply(seconds, pc.cast(runs.column("nodes"), pa.float64()))
    cells = _cells(table, is_run, runs, node_seconds)
    known = runs.num_rows > 0 and runs.column("predicted_s").null_count == 0
    return {
        "name": name,
        "candidates": table.num_rows,
        "runs": runs.num_rows,
        "rejected": table.num_rows - runs.num_rows,
        "rejected_by_rule": _by_rule(table, is_run),
        "cells": cells,
        "predicted_node_hours": round(sum(cell["predicted_node_hours"] for cell in cells), 3),
        "prediction": "rough model of the step time, and 30 s to start"
        if known
        else f"{ASSUMED_RUN_S:g} s per run assumed",
    }


def _by_rule(table: Any, is_run: Any) -> list[dict[str, Any]]:
    """Rejected candidates per rule, most first. A candidate counts once with every rule that rejects it."""
    reasons = table.filter(pc.invert(is_run)).column("reasons").combine_chunks()
    if not len(reasons):
        return []
    counts = pc.value_counts(pc.list_flatten(reasons)).to_pylist()
    rules: dict[str, dict[str, Any]] = {}
    for entry in sorted(counts, key=lambda e: (-e["counts"], e["values"])):
        rule, _, text = entry["values"].partition(": ")
        found = rules.setdefault(rule, {"rule": rule, "candidates": 0, "such_as": []})
        found["candidates"] += entry["counts"]
        if len(found["such_as"]) < COMMONEST:
            found["such_as"].append(text)
    return sorted(rules.values(), key=lambda rule: (-rule["candidates"], rule["rule"]))


def _cells(table: Any, is_run: Any, runs: Any, node_seconds: Any) -> list[dict[str, Any]]:
    """Every (model, nodes) cell, by model and nodes, those without a run included."""
    cell = pa.table(
        {"model": _text(table), "nodes": table.column("nodes"), "gpus": table.column("gpus"), "run": is_run}
    )
    candidates = cell.group_by(["model", "nodes", "gpus"]).aggregate([("run", "sum"), ("run", "count")])
    spent = pa.table({"model": _text(runs), "nodes": runs.column("nodes"), "s": node_seconds})
    hours = {
        (r["model"], r["nodes"]): r["s_sum"] / 3600
        for r in spent.group_by(["model", "nodes"]).aggregate([("s", "sum")]).to_pylist()
    }
    return [
        {
            "model": row["model"],
            "nodes": row["nodes"],
            "gpus": row["gpus"],
            "runs": row["run_sum"],
            "rejected": row["run_count"] - row["run_sum"],
            "predicted_node_hours": round(hours.get((row["model"], row["nodes"]), 0.0), 3),
        }
        for row in sorted(candidates.to_pylist(), key=lambda row: (_natural(row["model"]), row["nodes"]))
    ]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts 8B before 80B."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _text(table: Any) -> Any:
    return pc.cast(table.column("model"), pa.string())
