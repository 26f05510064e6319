"""What `sweep explain` says of a run that is ok: its figures, its rank in its cell, predicted against measured."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from sweep.contract import LAYOUT, further_of, node_group_of
from sweep.errors import plural
from sweep.files import read_table
from sweep.records.schema import numbers_of

if TYPE_CHECKING:
    from sweep.inputs.site import Site
    from sweep.records.schema import Record
    from sweep.store.directory import SweepDir
    from sweep.store.sweep import Sweep

MEASURED = (
    "tokens_per_second_per_gpu",
    "mfu",
    "mfu_of_bf16",
    "step_time_median_s",
    "peak_memory_bytes",
    "total_s",
    "simulated",
)


def measured(directory: SweepDir, record: Record) -> dict[str, Any]:
    """The figures as JSON values; what is not known is null."""
    from sweep.store.sweep import open_sweep

    sweep = open_sweep(directory.path)
    cell = sweep.tally.cells.get((record.model or "", record.nodes or 0))
    rates = sorted(cell.medians(), reverse=True) if cell is not None else []
    own, repeats = (cell.median_with(record.run_id) if cell is not None else None) or (None, 0)
    rank = None if own is None else 1 + sum(rate > own for rate in rates)
    return {
        **{name: getattr(record, name) for name in MEASURED},
        "median_tokens_per_second_per_gpu": own,
        "measured_runs": repeats,
        "rank_in_cell": rank,
        "ranked_in_cell": len(rates),
        "of_best": None if own is None else own / rates[0],
        "predicted": _predicted(sweep, record),
        "forward_backward_s": _median(json.loads(record.extra_json or "{}").get("forward_backward_times_s")),
    }


def measured_lines(directory: SweepDir, record: Record) -> list[str]:
    """The same as text."""
    figures = measured(directory, record)
    predicted = figures["predicted"]
    rate, mfu = figures["tokens_per_second_per_gpu"], figures["mfu"]
    from analysis.metrics import memory_text

    speed = "–" if rate is None else f"{rate:,.4g} tokens/s/GPU"
    note = " (simulated: no model was trained)" if figures["simulated"] else ""
    shares = [] if mfu is None else [f", MFU {mfu:.1%}"]
    shares += [f" ({figures['mfu_of_bf16']:.1%} of bf16's peak)"] if figures["mfu_of_bf16"] is not None else []
    lines = [f"{'speed:':9} {speed}{''.join(shares)}{note}"]
    if figures["measured_runs"] > 1:
        median, runs = figures["median_tokens_per_second_per_gpu"], figures["measured_runs"]
        lines[0] += " in this run"
        lines.append(f"{'median:':9} {median:,.4g} tokens/s/GPU of its {runs} runs: what `best` and the heatmap show")
    if figures["rank_in_cell"] is not None:
        cell = f"{record.model} on {plural(record.nodes or 0, 'node')}"
        share = f", {figures['of_best']:.1%} of the best" if figures["rank_in_cell"] > 1 else ""
        rank = f"{figures['rank_in_cell']} of {figures['ranked_in_cell']} measured configurations of {cell}"
        lines.append(f"{'rank:':9} {rank}{share}")
    pairs = (
        ("step", "step_s", figures["step_time_median_s"], seconds_text),
        ("attempt", "attempt_s", figures["total_s"], seconds_text),
        ("memory", "peak_bytes", figures["peak_memory_bytes"], memory_text),
    )
    for name, key, value, text in pairs:
        lines.append(f"{name + ':':9} {_against(predicted[key], value, text)}")
    if predicted["parts_s"]:
        parts = ", ".join(
            f"{name.replace('_', ' ')} {seconds_text(s)}" for name, s in predicted["parts_s"].items() if s
        )
        lines.append(f"{'parts:':9} predicted: {parts}")
        if figures["forward_backward_s"] is not None:
            lines.append(f"{'':9} measured: forward and backward {seconds_text(figures['forward_backward_s'])}")
    return lines


def _predicted(sweep: Sweep, record: Record) -> dict[str, Any]:
    """What the plan predicted, and the step by part; null where the hardware's speed is not known."""
    import pyarrow.compute as pc

    names = ["run_id", "predicted_step_s", "predicted_s", "predicted_peak_bytes"]
    tables = [read_table(path, columns=names) for path in sweep.plans]
    rows = [
        row for table in tables for row in table.filter(pc.equal(table.column("run_id"), record.run_id)).to_pylist()
    ]
    row = rows[0] if rows else dict.fromkeys(names)
    known = {"step_s": "predicted_step_s", "attempt_s": "predicted_s", "peak_bytes": "predicted_peak_bytes"}
    return {
        **{name: row[column] for name, column in known.items()},
        "parts_s": None if row["predicted_step_s"] is None else predicted_parts(record, sweep.site),
    }


def predicted_parts(record: Record, site: Site | None) -> dict[str, float] | None:
    """Seconds of the predicted step by part; None where the workload's memory profile or the GPU's speed is unknown.

    ``site``: of the sweep; None of a results file, whose GPUs are as the data sheet has them.
    """
    from sweep.physics.hardware import GPUS
    from sweep.physics.profiles import profile_of
    from sweep.physics.step_time import predict

    known = GPUS.get((record.gpu or "").lower())
    gpu = known if site is None else site.part(node_group_of(record.model or "")).hardware
    names = (*LAYOUT, "nodes", "gpus_per_node", "sequence_length", "dtype")
    stated, shape = {name: getattr(record, name) for name in names}, json.loads(record.shape_json or "{}")
    if gpu is None or gpu.name == "cpu" or not shape or None in stated.values():
        return None
    columns = {**stated, **further_of(vars(record)), **shape, "compile": bool(record.compile)}
    profile = profile_of(record.workload or "", json.loads(record.params_json or "{}"), compiled=columns["compile"])
    if profile is None:
        return None
    return {name: float(seconds) for name, seconds in predict(columns, gpu, profile).items()}


def _against(predicted: float | None, value: float | None, text: Any) -> str:
    if value is None:
        return "not measured" if predicted is None else f"{text(predicted)} predicted, not measured"
    if predicted is None:
        return f"{text(value)} measured; no prediction: the hardware's speed is not known"
    return f"{text(value)} measured, {text(predicted)} predicted ({predicted / value - 1:+.0%})"


def seconds_text(value: float) -> str:
    """310 ms, 2.4 s."""
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


def _median(values: Any) -> float | None:
    return statistics.median(numbers) if (numbers := numbers_of(values)) else None
