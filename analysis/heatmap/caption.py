"""The texts around a heatmap: what was held fixed, how to read it, and why cells are blank. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis import filters
from analysis.derive.best import is_simulated, on_cpu, succeeded, truth
from analysis.derive.swept import shared_words
from analysis.heatmap.cell_text import has_bf16_states, has_interval
from analysis.metrics import Metric, number
from analysis.tables import items_of, known, places_text
from sweep.errors import first_names

if TYPE_CHECKING:
    import pandas as pd

MOST_NOTES = 8
"""Reasons of blank cells that a figure spells out; `--json` has all"""

MARKS = {
    "simulated": "simulated: no model was trained; ranks slept for the step times of a formula.",
    "predicted": "predicted: nothing was measured; speed and memory are those of the models of physics.",
    "some predicted": "pred.: not measured; the best layout as the measured cells predict it.",
}
"""in a title -> the note that explains it"""

WAITING = ("not_run", "absent")
"""States of blank cells that the key explains once for all"""


def held_fixed(rows: pd.DataFrame, best: pd.DataFrame | None = None, metric: Metric | None = None) -> list[str]:
    """By what configurations are ranked, and what the rows share, or the range over which they differ.

    ``rows``: what was measured. ``best``: what is shown of it, if not all. As short phrases.
    """
    best = rows if best is None else best
    phrases = [f"ranked by {metric.label}"] if metric is not None else []
    phrases += _range(rows, best, "sequence_length", "sequence {}")
    phrases += _range(rows, best, "global_batch_tokens", "{} tokens per step")
    phrases += [*_words(rows, "dtype", "{}"), *shared_words(rows)]
    phrases += _range(rows, best, "iterations", "median of {} iterations")
    phrases += ["on CPU: each rank represents a GPU"] if on_cpu(rows) else _words(rows, "gpu", "GPU {}")
    return phrases + _words(rows, "workload", "workload {}") + _words(rows, "sweep_name", "sweep {}")


def measured_rows(records: pd.DataFrame, keep: str | None) -> pd.DataFrame:
    """The records that succeeded and meet the expression; all of them where none succeeded."""
    rows = records if keep is None else filters.keep(records, keep)
    ok = rows[succeeded(rows)]
    return ok if len(ok) else rows


def marks_of(rows: pd.DataFrame) -> list[str]:
    """Keys of ``MARKS``: what of the rows was not measured on GPUs that trained."""
    marks = ["simulated"] if is_simulated(rows) else []
    predicted = truth(rows["predicted"])
    return marks + (["predicted" if predicted.all() else "some predicted"] if predicted.any() else [])


def key(best: pd.DataFrame, metric: Metric, shown: Metric, level: str) -> list[str]:
    """How to read a cell: only what this figure contains."""
    contents = [shown.label if shown.absolute else f"{shown.label} of the best configuration"]
    if level in ("full", "brief"):
        contents += [metric.label] * (metric.name != shown.name)
        ends = best[["predicted", "low", "high"]].to_dict("records")
        contents += ["the interval of 9 in 10 predictions"] * any(has_interval(cell) for cell in ends)
        contents += ["peak memory per GPU"] * bool(best["peak_memory_bytes"].notna().any())
    sentences = [f"Each cell: {', '.join(contents)}."]
    if level == "full":
        sentences.append("DP TP PP CP EP: data, tensor, pipeline, context, expert parallel; MBS: micro-batch size;")
        sentences.append("GAS: gradient accumulation; rc: activation recomputation.")
        swept = best.get("swept", ())  # what else than the layout differs
        words = {word for cell in swept for word in items_of(cell)}.union(shared_words(best))
        names = {"ETP": "expert tensor parallel", "VP": "virtual stages per rank"}
        stated = [f"{name}: {text}" for name, text in names.items() if any(w.startswith(name) for w in words)]
        sentences += [f"{'; '.join(stated)}."] * bool(stated)
        if any(has_bf16_states({"params_json": text}) for text in _values(best, "params_json")):
            sentences.append("bf16-states: weights, gradients and both moments in bf16, no fp32 master weights.")
    else:
        sentences.append("Layouts and all other columns: `sweep heatmap --json`.")
    if any(items_of(ties) for ties in best.get("ties", ())):
        sentences.append("≈n: n other configurations are within noise of it (their iterations' intervals overlap).")
    if "suspect" in best and truth(best["suspect"]).any():
        sentences.append(
            "!: not to be trusted: the record contradicts itself, or memory ran short in its steps; see its notes."
        )
    for name, phrase in (("flops_convention", "FLOPs: {}."), ("memory_kind", "Memory: {}.")):
        values = _values(best, name)
        if len(values) == 1 and (name != "flops_convention" or shown.name in ("mfu", "hfu", "tflops_per_gpu")):
            sentences.append(phrase.format(values[0]))
    return sentences


def blank_notes(blanks: pd.DataFrame) -> tuple[dict[tuple[str, int], int], list[str]]:
    """Numbers of the blank cells that need a note, and the notes, equal reasons together."""
    reasons: dict[str, list[tuple[str, int]]] = {}
    for model, nodes, status, reason in zip(*(blanks[n] for n in ("model", "nodes", "status", "reason")), strict=True):
        if status not in WAITING:
            reasons.setdefault(str(reason), []).append((str(model), int(nodes)))
    numbers, notes = {}, []
    for at, (reason, cells) in enumerate(list(reasons.items())[:MOST_NOTES], start=1):
        numbers.update(dict.fromkeys(cells, at))
        notes.append(f"[{at}] {places_text(cells, most=4)}: {reason}.")
    if len(reasons) > MOST_NOTES:
        notes.append(f"{len(reasons) - MOST_NOTES} more reasons for blank cells: `sweep heatmap --json`.")
    statuses = set(blanks["status"])
    if "not_run" in statuses:
        notes.append("not run: planned, no record yet.")
    if "absent" in statuses:
        notes.append("–: no candidate here.")
    return numbers, notes


def _range(rows: pd.DataFrame, best: pd.DataFrame, name: str, phrase: str) -> list[str]:
    """The value, or the range and the value of all shown cells if they share one."""
    values = [float(value) for value in _values(rows, name)]
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [phrase.format(_whole(low))]
    shown = {float(value) for value in _values(best, name)}
    text = phrase.format(f"{_whole(low)} to {_whole(high)}")
    return [f"{text} (all shown: {_whole(shown.pop())})" if len(shown) == 1 else text]


def _whole(value: float) -> str:
    return f"{value:,.0f}" if value < 1e5 else number(value)


def _words(rows: pd.DataFrame, name: str, phrase: str) -> list[str]:
    values = sorted(str(value) for value in _values(rows, name))
    if not values:
        return []
    return [phrase.format(first_names(values, 3, "/"))]


def _values(rows: pd.DataFrame | Mapping[str, Any], name: str) -> list[Any]:
    return [value for value in rows[name].unique() if known(value)] if name in rows else []
