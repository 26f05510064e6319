"""A plan in numbers: counts by reason, runs per cell, and predicted cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from sweep.contract import LAYOUT
from sweep.errors import natural
from sweep.planning.runs import ASSUMED_RUN_S, ASSUMED_START_S, Plan

COMMONEST = 10
"""number of example reasons that a summary shows per rule"""


def summary(plan: Plan) -> dict[str, Any]:
    """Counts by reason, runs per cell and predicted node-hours, as JSON values: what `sweep plan` shows."""
    table = plan.table
    is_run = pc.is_valid(table.column("run_id"))
    runs = table.filter(is_run).select(["model", "nodes", "predicted_s"])
    spent: dict[tuple[str, int], tuple[int, float]] = {}
    for model, nodes, seconds in zip(*(column.to_pylist() for column in runs.columns), strict=True):
        count, hours = spent.get((model, nodes), (0, 0.0))
        here = nodes * (ASSUMED_RUN_S if seconds is None else seconds) / 3600
        spent[model, nodes] = (count + 1, hours + here)
    cells = _cells(table, spent, _predicted_best(table.filter(is_run)))
    known = runs.num_rows > 0 and runs.column("predicted_s").null_count == 0
    modelled = f"model of the step time, and {ASSUMED_START_S:g} s to start each"
    guess = modelled if known else f"{ASSUMED_RUN_S:g} s per run assumed"
    return {
        "name": plan.name,
        "candidates": table.num_rows,
        "runs": runs.num_rows,
        "rejected": table.num_rows - runs.num_rows,
        "rejected_by_rule": _by_rule(table, is_run),
        "cells": cells,
        "predicted_node_hours": round(sum(cell["predicted_node_hours"] for cell in cells), 3),
        "prediction": guess,
    }


def _by_rule(table: Any, is_run: Any) -> list[dict[str, Any]]:
    """Rejected candidates per rule, most first. A candidate counts once for every rule that rejects it."""
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


def _predicted_best(runs: Any) -> dict[tuple[str, int], dict[str, Any]]:
    """(model, nodes) -> the layout that the step-time model expects to be fastest: the first of the plan's order."""
    numbers = ("global_batch_tokens", "predicted_step_s", "predicted_peak_bytes", "position")
    names = ["model", "nodes", "gpus", *LAYOUT, *numbers]
    found: dict[tuple[str, int], dict[str, Any]] = {}
    known = runs.filter(pc.is_valid(runs.column("predicted_step_s"))).select([*names, "run_id"])
    if not known.num_rows:
        return {}
    rate = pc.divide(known.column("global_batch_tokens"), known.column("predicted_step_s"))
    known = known.append_column("rate", rate)
    for row in known.sort_by("position").to_pylist():
        if (row["model"], row["nodes"]) not in found:
            layout = {name: row[name] for name in LAYOUT}
            speed = {"tokens_per_second_per_gpu": row["rate"] / row["gpus"], "step_s": row["predicted_step_s"]}
            found[row["model"], row["nodes"]] = {
                **layout, **speed, "peak_memory_bytes": row["predicted_peak_bytes"], "run_id": row["run_id"]
            }  # fmt: skip
    return found


def _cells(
    table: Any, runs: dict[tuple[str, int], tuple[int, float]], best: dict[tuple[str, int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """Every (model, nodes) cell, by model and nodes, including those without a run.

    ``runs``: the cell's runs, and their predicted node-hours.
    """
    if not table.num_rows:
        return []
    table = table.select(["model", "nodes", "gpus"]).unify_dictionaries().combine_chunks()
    names, nodes, gpus = (column.chunk(0) for column in table.columns)
    codes, node_counts, gpu_counts = (_numbers(array) for array in (names.indices, nodes, gpus))
    combined = codes * (int(node_counts.max()) + 1) + node_counts.astype(np.int64)
    _, first, counts = np.unique(combined, return_index=True, return_counts=True)
    cells = []
    for row, count in zip(first.tolist(), counts.tolist(), strict=True):
        model, nodes, gpus = names.dictionary[int(codes[row])].as_py(), int(node_counts[row]), int(gpu_counts[row])
        found, hours = runs.get((model, nodes), (0, 0.0))
        cell = {"model": model, "nodes": nodes, "gpus": gpus, "runs": found, "rejected": count - found}
        predicted = {"predicted_node_hours": round(hours, 3), "predicted_best": best.get((model, nodes))}
        cells.append(cell | predicted)
    return sorted(cells, key=lambda cell: (natural(cell["model"]), cell["nodes"]))


def _numbers(array: Any) -> npt.NDArray[Any]:
    """Those of an array without nulls. ``to_numpy`` would import pandas."""
    numbers = np.frombuffer(array.buffers()[1], dtype=array.type.to_pandas_dtype())
    return numbers[array.offset : array.offset + len(array)]
