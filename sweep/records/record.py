"""The record that an attempt leaves: one row of the schema, built in one place."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sweep.outcomes import Outcome
from sweep.records import metrics

if TYPE_CHECKING:
    from sweep.contract import Measurement, Run
from sweep.records.schema import COLUMNS, TIME_NAMES


def implausible(record: Mapping[str, Any]) -> list[str]:
    """What cannot be true of a measurement, each in words. Empty for a plausible one."""
    notes = []
    for name in ("mfu", "hfu", "reported_mfu"):
        value = record.get(name)
        if value is not None and value > 1:
            notes.append(f"{name} is {value:.1%} of the peak: no hardware does more than its peak")
    mfu, hfu = record.get("mfu"), record.get("hfu")
    if mfu is not None and hfu is not None and hfu < mfu * (1 - 1e-9):
        notes.append(f"hfu {hfu:.1%} is less than mfu {mfu:.1%}: executed FLOPs include the model's")
    notes += [f"{name} is {record[name]}" for name in _POSITIVE if _not_positive(record.get(name))]
    return notes


_POSITIVE = ("tokens_per_second", "tokens_per_second_per_gpu", "step_time_median_s", "tflops_per_gpu", "mfu")


def _not_positive(value: float | None) -> bool:
    return value is not None and value <= 0


def build_record(
    *,
    run: Run,
    attempt: int,
    outcome: Outcome,
    message: str | None,
    evidence: str | None = None,
    advice: str | None = None,
    measurements: Sequence[Measurement | None],
    node_names: Sequence[str],
    gpu: str | None,
    pilot: str,
    job_id: str | None,
    started_at: float,
    ended_at: float,
    times_s: Mapping[str, float],
    sweep_name: str,
    torch_version: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The record of one attempt: JSON values only, every column of ``COLUMNS``, missing ones null.

    ``measurements``: one per rank that was to measure, None where it gave none (rank order).
    ``times_s``: seconds by ``TIME_NAMES``; ``total_s`` defaults to ``ended_at - started_at``.
    ``torch_version``: what the site says of the ranks' torch, None where it does not. Another one is noted.
    ``extra``: further facts, JSON values, kept in ``extra_json``.

    Only ``ok`` has metrics, and an ``ok`` stands only where every rank measured what was asked: else the
    outcome becomes config_mismatch (ran something else), nan_loss (a loss that is not finite) or unknown
    (no measurement).
    """
    unknown = sorted(set(times_s) - set(TIME_NAMES))
    assert not unknown, f"times_s holds {unknown}; the schema knows {TIME_NAMES}"
    given = [m for m in measurements if m is not None]
    if outcome == Outcome.OK and (refused := metrics.refusal(run, measurements)) is not None:
        outcome, message = refused
    record: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS)
    record.update(_configuration(run, gpu) | metrics.parameters(run))
    record.update(sweep_name=sweep_name, attempt=attempt, pilot=pilot, job_id=job_id)
    record.update(started_at=started_at, ended_at=ended_at, total_s=ended_at - started_at)
    record.update(times_s)
    record.update(outcome=str(outcome), message=message, evidence=evidence, advice=advice)
    record.update(node_names=list(node_names), simulated=any(m.simulated for m in given))
    record.update(metrics.memory(measurements))
    if outcome == Outcome.OK:
        record.update(metrics.metrics(run, given, gpu))
        record["slow_rank"] = metrics.slow_rank(metrics.own_step_times_s(given), record["step_time_median_s"])
    notes = metrics.oddities(given) + metrics.of_another_torch(given, torch_version) + implausible(record)
    record.update(suspect=bool(notes), notes=notes)
    record.update(_details(given, extra))
    return record


def _configuration(run: Run, gpu: str | None) -> dict[str, Any]:
    """The identity and configuration columns that the run itself states."""
    layout = dataclasses.asdict(run.layout)
    return layout | {
        "run_id": run.run_id,
        "repeat": run.repeat,
        "workload": run.workload,
        "model": run.model,
        "shape_json": _json(run.shape),
        "nodes": run.nodes,
        "gpus_per_node": run.gpus_per_node,
        "gpus": run.gpus,
        "gpu": gpu,
        "sequence_length": run.sequence_length,
        "dtype": run.dtype,
        "compile": run.compile,
        "global_batch_tokens": run.global_batch_tokens,
        "warmup_iterations": run.warmup_iterations,
        "iterations": run.iterations,
        "params_json": _json(run.params),
        "env_json": _json(run.env),
    }


def _details(given: Sequence[Measurement], extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """The columns that hold JSON: versions, effective configuration, further numbers."""
    first = given[0] if given else None
    further = dict(extra or {})
    if given:
        further |= metrics.over_ranks([m.extra for m in given])
        further["phases_s"] = metrics.over_ranks([m.phases_s for m in given])
        further["warmup_times_s"] = list(given[0].warmup_times_s)
        further["device"] = given[0].device
    return {
        "versions_json": _json(first.versions) if first else None,
        "effective_json": _json(first.effective) if first else None,
        "extra_json": _json(further),
    }


def _json(value: Mapping[str, Any]) -> str:
    """Sorted JSON; a number that JSON does not know becomes null."""
    return json.dumps(_finite(value), sort_keys=True, separators=(",", ":"), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
