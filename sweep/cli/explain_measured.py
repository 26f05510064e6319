"""What `sweep explain` says of a run that is ok: its figures, its rank in its cell, predicted against measured. With
`--gap`: what a step loses against the peak FLOP/s of the GPU, and the likeliest causes.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.contract import LAYOUT, further_of, node_group_of
from sweep.errors import plural
from sweep.files import read_table
from sweep.records.schema import numbers_of

if TYPE_CHECKING:
    from sweep.diagnose.gap import MeasuredStep
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
CAUSES_SHOWN = 3
LEVEL = 0.01
"""The chance of a false claim: that of `sweep compare`"""
COLUMNS = ("node_names", "leaf_switches", "slow_rank")
LEAST_SHARE = 0.005
"""of a step: what is shown as 0 % is no cause"""


def measured(directory: SweepDir, record: Record) -> dict[str, Any]:
    """The figures as JSON values; what is not known is null."""
    from sweep.store.sweep import open_sweep

    sweep = open_sweep(directory.path)
    cell = sweep.tally.cells.get((record.model or "", record.nodes or 0))
    rates = sorted(cell.medians(), reverse=True) if cell is not None else []
    own, repeats = (cell.median_with(record.run_id) if cell is not None else None) or (None, 0)
    rank = None if own is None else 1 + sum(rate > own for rate in rates)
    times = numbers_of(json.loads(record.extra_json or "{}").get("forward_backward_times_s"))
    return {
        **{name: getattr(record, name) for name in MEASURED},
        "median_tokens_per_second_per_gpu": own,
        "measured_runs": repeats,
        "rank_in_cell": rank,
        "ranked_in_cell": len(rates),
        "of_best": None if own is None else own / rates[0],
        "predicted": _predicted(sweep, record),
        "forward_backward_s": statistics.median(times) if times else None,
    }


def measured_lines(figures: Mapping[str, Any], record: Record) -> list[str]:
    """The same as text."""
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


def gap_of(sweep: Sweep | None, record: Record, nodes: NodesKnown) -> dict[str, Any]:
    """A measured run's losses as JSON values, the largest first; what is not known is null.

    ``sweep``: has the plan and the site; None where the record is from a results file.
    """
    from sweep.diagnose.gap import losses

    facts = facts_of(record, predicted_parts(record, None if sweep is None else sweep.site), nodes)
    rates = None if sweep is None else sweep.site.part(node_group_of(record.model or "")).measured
    return {
        "run_id": record.run_id,
        "model": record.model,
        "nodes": record.nodes,
        "mfu": record.mfu,
        "step_s": facts.step_s,
        "ideal_step_s": facts.ideal_s,
        "predicted_step_s": None if facts.parts_s is None else sum(facts.parts_s.values()),
        "losses": [{**asdict(loss), "share": loss.seconds / facts.step_s} for loss in losses(facts)],
        "rates_measured_on": None if rates is None else str(rates.date),
        "nodes_found": list(facts.nodes_found),
        "notes": list(record.notes or ()),
    }


def facts_of(record: Record, parts_s: Mapping[str, float] | None, known: NodesKnown) -> MeasuredStep:
    """What the record and the prediction know of a run that is ok."""
    from sweep.diagnose.gap import MeasuredStep
    from sweep.records.schema import OVERSUBSCRIBED

    further = json.loads(record.extra_json or "{}")
    step_s = record.step_time_median_s or 0.0
    own = further.get("own_time_median_s")
    both = numbers_of([own.get("median"), own.get("max")] if isinstance(own, dict) else None)
    nodes, per_node = record.node_names or [], record.gpus_per_node or 1
    slow = record.slow_rank
    where = "" if slow is None or not 0 <= slow // per_node < len(nodes) else f" on {nodes[slow // per_node]}"
    return MeasuredStep(
        step_s=step_s,
        ideal_s=None if record.mfu is None else record.mfu * step_s,
        executed_s=None if record.hfu is None else record.hfu * step_s,
        parts_s=parts_s,
        own_times_s=(both[0], both[1]) if both else None,
        slow=None if slow is None else f"rank {slow}{where}",
        step_times_s=record.step_times_s or (),
        elsewhere_s=known.elsewhere_s(record),
        oversubscribed=OVERSUBSCRIBED in (record.notes or ()),
        nodes_found=known.findings(record),
        clocks_mhz=_lowered_clocks(further.get("device_samples")),
    )


def gap_lines(document: Mapping[str, Any]) -> list[str]:
    """The same as text."""
    head = f"{document['model']} on {plural(document['nodes'], 'node')}: {document['run_id']}"
    lines = [head, f"{'step:':11} {_step(document)}"]
    if (predicted_s := document["predicted_step_s"]) is not None and predicted_s > document["step_s"] * (
        1 + LEAST_SHARE
    ):
        over = predicted_s / document["step_s"] - 1
        words = f"its parts sum to {seconds_text(predicted_s)}, {over:.0%} more than the step that was measured"
        lines.append(f"{'model:':11} {words}: predicted causes are too large, in all by that much")
    shown = [loss for loss in document["losses"] if loss["share"] >= LEAST_SHARE]
    lines += ["likeliest causes:"] if shown else []
    for number, loss in enumerate(shown[:CAUSES_SHOWN], 1):
        basis = "measured" if loss["measured"] else "predicted"
        size = f"{seconds_text(loss['seconds'])} of a step ({loss['share']:.0%}), {basis}"
        lines += [f"  {number}. {loss['cause']}: {size}: {loss['evidence']}", f"     try: {loss['advice']}"]
    if not shown:
        lines.append("no cause is known: nothing odd was measured, and there is no prediction to compare with")
    if document["rates_measured_on"] is None and document["predicted_step_s"] is not None:
        lines.append(f"{'rates:':11} nominal; `sweep doctor --tier perf` measures this cluster's own")
    lines += [f"{'node:':11} {text}" for text in document["nodes_found"]]
    lines += [f"{'note:':11} {note}" for note in document["notes"]]
    return lines


def _step(document: Mapping[str, Any]) -> str:
    text = seconds_text(document["step_s"])
    if document["ideal_step_s"] is not None:
        ideal = seconds_text(document["ideal_step_s"])
        text += f", {ideal} of it are the model's FLOPs at the dense peak (MFU {document['mfu']:.1%})"
    if document["predicted_step_s"] is not None:
        text += f"; {seconds_text(document['predicted_step_s'])} predicted"
    return text


def _lowered_clocks(samples: Any) -> tuple[float, float] | None:
    """(median, greatest) clock in MHz, where the GPU says that it lowered it. Of several ranks, the first's samples."""
    clocks = numbers_of(samples.get("sm_clock_mhz")) if isinstance(samples, dict) else ()
    return (clocks[1], clocks[2]) if len(clocks) == 3 and samples.get("throttle_reasons") else None


class NodesKnown:
    """The runs and the exclusions of a sweep (or the runs of a results file), read once."""

    def __init__(self, place: Path, directory: SweepDir | None) -> None:
        import analysis
        from analysis.derive.best import NEEDED
        from analysis.derive.nodes import health
        from analysis.derive.placement import placed
        from sweep.store.snapshot import read_state

        records = analysis.load(place, [*NEEDED, *COLUMNS])
        self._placed = placed(records)
        self._health = health(records).set_index("node")
        self._excluded: Mapping[str, str] = {} if directory is None else read_state(directory).excluded_nodes

    def elsewhere_s(self, record: Record) -> list[float]:
        """Step times of the other runs of its configuration, on sets of nodes without any of its own; none unless this
        run is slower than they are beyond their spread.
        """
        own = self._placed[self._placed["run_id"] == record.run_id]
        if own.empty or record.step_time_median_s is None:
            return []
        runs = self._placed[self._placed["configuration"] == own["configuration"].iloc[0]]
        names = set(record.node_names or ())
        other = runs[[names.isdisjoint(text.split(", ")) for text in runs["node_set"]]]
        step_s, ratio = record.step_time_median_s, float(own["ratio"].iloc[0])
        times = [step_s * ratio / value for value in other["ratio"].astype(float)]
        return times if clearly_slower(step_s, times) else []

    def findings(self, record: Record) -> list[str]:
        """A sentence per finding on each of its nodes."""
        return [text for node in dict.fromkeys(record.node_names or ()) for text in self._of(node)]

    def _of(self, node: str) -> Sequence[str]:
        texts = []
        if node in self._excluded:
            texts.append(f"{node} is excluded: {self._excluded[node]}")
        if node in self._health.index:
            row = self._health.loc[node]
            slow, faults = int(row["slow"]), int(row["faults"])
            of_all = f"of its {plural(int(row['attempts']), 'attempt')}"
            texts += [f"{node} held the slow rank in {slow} {of_all}"] if slow else []
            texts += [f"{faults} {of_all} on {node} failed as nodes make them fail"] if faults else []
        return texts


def clearly_slower(step_s: float, others_s: Sequence[float]) -> bool:
    """Whether a run is slower than others by more than their spread: the t test of one further value."""
    from sweep.physics.statistics import student_two_sided

    if len(others_s) < 2 or step_s <= statistics.fmean(others_s):
        return False
    logs = [math.log(other) for other in others_s]
    error = statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs))
    t = (math.log(step_s) - statistics.fmean(logs)) / error if error > 0 else math.inf
    return student_two_sided(t, len(logs) - 1) / 2 < LEVEL
