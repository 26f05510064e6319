"""Summaries of the measurements in `docs/data`, which pages show in place of all rows.

`python -m docs.generated` writes them into the pages.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from sweep.physics import flops, memory, step_time
from sweep.physics.catalogue import MODELS
from sweep.physics.flops import DEFAULT_CONVENTION
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import profile_of
from sweep.physics.shapes import ModelShape

DATA = Path(__file__).parent / "data"
DEGREES = ("dp", "tp", "pp", "cp", "ep")
FEWEST = 10
"""layouts of a feature that has a line of its own"""
Row = Mapping[str, str]


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a file of `docs/data`."""
    with (DATA / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    lines = [list(heads)]
    lines += [["---"] * len(lines[0]), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _percent(cell: str) -> float:
    return float(cell.rstrip("%")) / 100


def _grouped(rows: Iterable[Row], *columns: str) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in columns), []).append(row)
    return groups


# ---- layouts against one process


def truths() -> str:
    """The worst distances of all layouts that have a feature."""
    rows = rows_of("parallel_truth")
    failed = sum(row["loss"] == "failed" for row in rows)
    having: dict[str, list[Row]] = {}
    for row in rows:
        for feature in _features(row["layout"]):
            having.setdefault(feature, []).append(row)
    often = {feature: found for feature, found in having.items() if len(found) >= FEWEST}
    shown: list[tuple[str, Sequence[Row]]] = [("all", rows), *sorted(often.items(), key=lambda item: -len(item[1]))]
    few = ", ".join(f"`{feature}`" for feature in having if feature not in often)
    lines = table(
        ("feature", "layouts", "fp32", "bf16", "8 bits"),
        (
            [f"`{name}`", str(len(found)), *(_worst(found, kind) for kind in ("fp32", "bf16", "fp8"))]
            for name, found in shown
        ),
    )
    return f"{len(rows)} lines, {failed} failed, with torch {rows[0]['torch']}.\n\n{lines}\n\nIn fewer layouts: {few}."


def _features(layout: str) -> list[str]:
    """What a layout has beside one rank, by name; a choice with its value."""
    found = []
    for word in layout.split():
        name, _, value = word.partition("=")
        if name in ("pp_schedule", "recompute", "zero") and value != "0":
            found.append(word)
        elif name not in ("dtype", "zero", "micro_batch_size", "grad_accum") and (name not in DEGREES or value != "1"):
            found.append(name)
    return list(dict.fromkeys(found))


def _worst(rows: Iterable[Row], dtype: str) -> str:
    """Loss and norm."""
    mine = [row for row in rows if row["dtype"].startswith(dtype) and row["loss"] != "failed"]
    return ", ".join(f"{max(float(row[name]) for row in mine):.0e}" for name in ("loss", "norm")) if mine else ""


def refused() -> str:
    """Layouts that torch cannot run, or gets wrong."""
    rows = rows_of("parallel_refused")
    return table(("layout", "the plan's reason"), ((row["layout"], row["reason"]) for row in rows))


# ---- faults


def faults() -> str:
    """Each outcome with the faults that had it and the longest times, of the faults in which a time was measured."""
    measured = [row for row in rows_of("faults") if row["next_run"]]
    others = len(rows_of("faults")) - len(measured)
    left = sum(int(row["processes_left"]) for row in measured)
    following = ", ".join(dict.fromkeys(f"`{row['next_run']}`" for row in measured))
    lines = table(
        ("outcome", "faults", "s to detect", "s to clean", "accused"),
        (
            [
                f"`{outcome}`",
                str(len(found)),
                *(_range(found, column) for column in ("detect_s", "clean_s")),
                ", ".join(dict.fromkeys(row["accused"] for row in found)),
            ]
            for (outcome,), found in _grouped(measured, "outcome").items()
        ),
    )
    return (
        f"{lines}\n\nProcesses left a minute later: {left}. The next healthy run: {following}. "
        f"A further {others} faults are checked by tests that measure no times."
    )


def _range(rows: Iterable[Row], column: str) -> str:
    seconds = sorted({float(row[column]) for row in rows if row[column]})
    return " to ".join(f"{one:.1f}" for one in dict.fromkeys(seconds[:1] + seconds[-1:]))


# ---- predicted step times


def accuracy() -> str:
    """Errors of predictions by trainer, kind of model, GPU and dtype."""
    columns = ("trainer", "model", "GPU", "dtype", "rows", "MAPE", "bias", "in 90 %", "remark")
    return table(columns, ([row[column] for column in columns] for row in rows_of("accuracy")))


def peers() -> str:
    """Other models on the rows that they can express: on how many lines of the table above each errs less."""
    rows = [row for row in rows_of("accuracy") if row["trainer"] != "all"]
    lines = []
    for peer in ("calculon", "llm-analysis"):
        pairs = [
            (_percent(row[peer]), _percent(row[f"sweep, rows of {peer}"])) for row in rows if row[peer].endswith("%")
        ]
        theirs, ours = zip(*pairs, strict=True)
        better = sum(mine < other for other, mine in pairs)
        lines.append([peer, str(len(pairs)), *(f"{min(one):.0%} to {max(one):.0%}" for one in (theirs, ours)),
                      f"{better} of {len(pairs)}"])  # fmt: skip
    return table(("model", "lines", "its MAPE", "ours on the same rows", "ours is smaller on"), lines)


def by_table() -> str:
    """Of the published tables those that were not looked at while the model was made."""
    columns = ("table", "rows", "MAPE", "bias")
    unseen = [row for row in rows_of("accuracy_by_table") if row["looked at before"] == "no"]
    return table(columns, ([row[column] for column in columns] for row in unseen))


def predictors() -> str:
    """How well the runs of the playbook's cells are ordered."""
    rows = rows_of("playbook_predictors")
    return table(rows[0], (row.values() for row in rows))


def small_to_large() -> str:
    """Per table, the means over its kinds of GPU, each weighted by the runs that it predicts: from the runs on at most
    64 GPUs (adapters 8, 405B 512), or the fewest that a kind has.
    """

    def up_to(row: Row) -> int:
        return int(row["measured up to"].split()[0])

    def line(name: str, rows: list[Row]) -> list[str]:
        limit = {"MLPerf v5.0, Llama-2-70B": 8, "MLPerf v5.0, Llama-3.1-405B": 512}.get(name, 64)
        kinds = [of for _, of in _grouped(rows, "GPU").items()]
        found = [max((row for row in of if up_to(row) <= limit), key=up_to, default=of[0]) for of in kinds]
        predicted = [int(row["predicted"]) for row in found]

        def mean(column: str) -> str:
            cells = (_percent(row[column]) for row in found)
            return f"{sum(map(float.__mul__, cells, map(float, predicted))) / sum(predicted):.1%}"

        measured = ", ".join(dict.fromkeys(row["measured up to"] for row in found))
        return [name, measured, str(sum(predicted)), *(f"{mean(f'{what} before')}, {mean(f'{what} after')}"
                                                       for what in ("MAPE", "in 90 %"))]  # fmt: skip

    groups = _grouped(rows_of("small_to_large"), "table")
    heads = ("table", "measured up to", "predicted", "MAPE before, after", "in 90 % before, after")
    return table(heads, (line(name, found) for (name,), found in groups.items()))


# ---- one H200


def measured() -> str:
    """Runs on one H200 beside what the plan predicts of them: the best of each model, and the range of errors."""
    runs = [_compared(row) for row in rows_of("measured_h200")]
    heads = ("model", "runs", "best MFU", "its step (ms)", "its peak (GiB)", "step predicted", "peak predicted")
    lines = []
    for (model, dtype), found in itertools.groupby(
        sorted(runs, key=lambda run: (run["model"], run["dtype"])), key=lambda run: (run["model"], run["dtype"])
    ):
        several = list(found)
        best = max(several, key=lambda run: float(run["mfu"]))
        lines.append([
            f"{model}, {dtype}", str(len(several)), f"{float(best['mfu']):.1%}", f"{float(best['step_ms']):,.0f}",
            f"{float(best['peak_gib']):.1f}", _errors(several, "step_error", 0), _errors(several, "peak_error", 1),
        ])  # fmt: skip
    return table(heads, lines)


def _errors(runs: Iterable[Row], name: str, digits: int) -> str:
    """From the lowest to the highest."""
    errors = sorted(float(run[name]) for run in runs)
    return " to ".join(dict.fromkeys(f"{one:+.{digits}%}" for one in (errors[0], errors[-1])))


def _shape_of(model: str) -> ModelShape:
    stated = yaml.safe_load((DATA / "measured_h200.yaml").read_text())["models"][model]
    return MODELS[stated] if isinstance(stated, str) else ModelShape(**stated)


def _compared(row: Row) -> Row:
    gpu, shape, compiled = GPUS["h200"], _shape_of(row["model"]), row["compile"] == "True"
    sizes = {name: int(row[name]) for name in ("micro_batch_size", "grad_accum")} | {"sequence_length": 4096}
    columns = shape.as_dict() | sizes
    columns |= {"recompute": row["recompute"], "dtype": row["dtype"], "compile": compiled}
    profile = profile_of("transformer", {name: row[name] for name in ("attention", "weights_dtype")}, compiled=compiled)
    assert profile is not None
    step_s, peak_bytes = float(row["step_s"]), float(row["peak_bytes"])
    tokens = sizes["micro_batch_size"] * sizes["grad_accum"] * 4096
    needed = flops.model_flops_per_token(shape, 4096, DEFAULT_CONVENTION) * tokens
    return {
        "model": row["model"],
        "dtype": row["dtype"] + ", states too" * (row["weights_dtype"] == "bf16"),
        "step_ms": str(1e3 * step_s),
        "mfu": str(needed / step_s / (gpu.peak_flops(row["dtype"]) or 1)),
        "peak_gib": str(peak_bytes / 2**30),
        "step_error": str(step_time.step_time_s(columns, gpu, profile) / step_s - 1),
        "peak_error": str(memory.peak_bytes(columns, profile) / peak_bytes - 1),
    }


SUMMARIES: Mapping[str, Callable[[], str]] = {
    "measured": measured,
    "truths": truths,
    "refused": refused,
    "faults": faults,
    "accuracy": accuracy,
    "peers": peers,
    "by-table": by_table,
    "predictors": predictors,
    "small-to-large": small_to_large,
}
"""name of a place in a page -> its table"""
