"""Records for tests: made by `build_record` from measurements, as a pilot makes them."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from sweep.contract import Layout, Measurement, Run
from sweep.outcomes import Outcome
from sweep.records.record import EndedAttempt, build_record
from sweep.records.schema import TIME_NAMES, Record
from sweep.state.events import Event, Recorded, encode
from sweep.store.directory import SweepDir
from tests.support import published

TINY = {"num_layers": 4, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "vocab_size": 512}


def made_run(**changes: Any) -> Run:
    """A run of two ranks on one node; fields of its layout are accepted too."""
    layout_names = {f.name for f in dataclasses.fields(Layout)}
    layout = {"dp": 2, "grad_accum": 4} | {k: v for k, v in changes.items() if k in layout_names}
    values: dict[str, Any] = {
        "workload": "transformer",
        "model": "1B",
        "shape": TINY,
        "nodes": 1,
        "gpus_per_node": 2,
        "sequence_length": 128,
        "iterations": 3,
    }
    rest = {k: v for k, v in changes.items() if k not in layout_names}
    return Run(**(values | rest | {"layout": Layout(**layout)}))


def made_measurement(*times: float, **changes: Any) -> Measurement:
    """One rank's measurement."""
    return Measurement(step_times_s=list(times or (0.1, 0.2, 0.3)), **changes)


def made_record(
    run: Run | None = None,
    times: Iterable[float] = (0.1, 0.2, 0.3),
    *,
    attempt: int = 1,
    node_names: Sequence[str] = ("n1",),
    **changes: Any,
) -> Record:
    """The record of an attempt whose ranks all took the same times.

    ``changes``: fields of ``EndedAttempt``, its durations by column, or the measurements.
    """
    run = run or made_run()
    measured = [made_measurement(*times, peak_allocated_bytes=2**30) for _ in range(run.gpus)]
    if changes.get("outcome", Outcome.OK) != Outcome.OK:
        measured = [None] * run.gpus
    measured = changes.pop("measurements", measured)
    times_s = {name: changes.pop(name) for name in TIME_NAMES if name in changes}
    about = {"number": attempt, "nodes": node_names, "gpu": None, "pilot": "p1", "job_id": None, "sweep_name": "made"}
    about |= {"started_at": 100.0, "ended_at": 103.0, "outcome": Outcome.OK, "times_s": times_s}
    return build_record(EndedAttempt(run=run, **(about | changes)), measured)


def made_sweep(path: Path) -> SweepDir:
    """An empty sweep directory."""
    sweep = SweepDir(path)
    sweep.create_skeleton()
    sweep.provenance.write_text("{}")
    return sweep


def write_journal(sweep: SweepDir, writer: str, events: Iterable[Event]) -> None:
    """Append events to a journal as its writer does."""
    with sweep.journal(writer).open("ab") as file:
        file.writelines(encode(event) + b"\n" for event in events)


def record_event(record: Record, time: float = 1.0, **changes: Any) -> Recorded[Record]:
    """A journal's record event. ``changes``: columns to override."""
    return Recorded(time=time, record=dataclasses.replace(record, **changes))


def as_json(record: Record) -> dict[str, Any]:
    """A record as stored in a journal."""
    values: dict[str, Any] = msgspec.to_builtins(record)
    return values


def playbook_records() -> pd.DataFrame:
    """The Ultra-Scale Playbook's published runs as records."""
    raw = pd.read_csv(published.table("playbook_runs.csv"))
    return pd.DataFrame(
        {
            "run_id": "row-" + raw["row"].astype(str),
            "attempt": 1,
            "repeat": 0,
            "workload": "nanotron",
            "model": raw["model_label"],
            "parameters_total": (raw["params_b"] * 1e9).round().astype("int64"),
            "nodes": raw["nodes"],
            "gpus_per_node": 8,
            "gpus": raw["num_gpus"],
            "gpu": "h100",
            "sequence_length": raw["seq_len"],
            **{name: raw[name] for name in ("dp", "tp", "pp", "micro_batch_size", "grad_accum", "global_batch_tokens")},
            "cp": 1,
            "ep": 1,
            "zero": raw["zero_stage"],
            "dtype": "bf16",
            "tokens_per_second": raw["tok_s"],
            "tokens_per_second_per_gpu": raw["tok_s_gpu"],
            "reported_mfu": raw["mfu_pct"] / 100,
            "peak_memory_bytes": (raw["peak_mem_gib"] * 2**30).round().astype("Int64"),
            "outcome": raw["status"].map({"success": "ok"}).fillna("unknown"),
        }
    )


def made_grid(
    models: int, node_counts: int, *, per_cell: int = 4, failing: bool = True, **changes: Any
) -> pd.DataFrame:
    """Results of models × node counts (1, 2, 4, …), with ties, failed cells and cells without runs."""
    rows = []
    for m in range(models):
        for n in range(node_counts):
            if failing and (m + 2 * n) % 11 == 10:
                continue
            rows += [_made_row(m, n, k, failing=failing and (m * 3 + n) % 13 == 12) for k in range(per_cell)]
    return pd.DataFrame(rows).assign(**changes)


def _made_row(m: int, n: int, k: int, *, failing: bool) -> dict[str, Any]:
    nodes = 2**n
    rate = 40_000 / (1 + m) / (1 + 0.08 * n) * (1 - 0.004 * k)
    layout = {"dp": nodes * 8 // 2 ** (k % 3), "tp": 2 ** (k % 3), "pp": 1, "cp": 1 + m % 2, "ep": 1, "zero": k % 4}
    values = {
        "tokens_per_second_per_gpu": rate,
        "tokens_per_second": rate * nodes * 8,
        "mfu": 0.5 / (1 + 0.08 * n) / (1 + 0.02 * m),
        "step_time_median_s": 1.0,
        "step_time_min_s": 0.995,
        "step_time_max_s": 1.01,
        "peak_memory_bytes": int((20 + 5 * m + k) * 2**30),
    }
    return {
        "run_id": f"r{m}-{n}-{k}",
        "attempt": 1,
        "repeat": 0,
        "workload": "transformer",
        "model": f"{1 + 3 * m}B",
        "parameters_total": int((1 + 3 * m) * 1e9),
        "nodes": nodes,
        "gpus_per_node": 8,
        "gpus": 8 * nodes,
        "gpu": "h100",
        "sequence_length": 4096,
        "global_batch_tokens": 2**20,
        "dtype": "bf16",
        "iterations": 5,
        "micro_batch_size": 1 + k,
        "grad_accum": max(1, 128 // nodes),
        "recompute": ("none", "selective", "full")[m % 3],
        "outcome": "oom_cuda" if failing else "ok",
        "suspect": False,
        "simulated": False,
        **layout,
        **{name: None if failing else value for name, value in values.items()},
    }
