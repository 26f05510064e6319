"""A plan's predictions in the form of records: what the step-time model expects of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


def predicted_records(plan: pd.DataFrame) -> pd.DataFrame:
    """A row per run of a plan (all columns of ``sweep.plan.table.SCHEMA``) with predicted speed and memory.

    Column ``predicted`` is true: figures made of these rows are marked. Raises SweepError where nothing is predicted.
    """
    runs = plan[plan["run_id"].notna() & plan["predicted_step_s"].notna()].reset_index(drop=True)
    if runs.empty:
        fact = "no run of the plan has a predicted step time: the GPU's speed or the workload's memory is not known"
        raise SweepError(Mistake(fact, remedy="name the site's gpu, such as h100; or measure"))
    made = _as_records(runs, runs["predicted_step_s"].astype(float))
    # A plan puts a run last whose memory is over, though by less than the model's error: it is not the predicted best.
    first = made.sort_values("position").groupby(["model", "nodes"], sort=False)["tokens_per_second"].transform("first")
    sure: pd.DataFrame = made[made["tokens_per_second"] <= first].reset_index(drop=True)
    return sure


def learned_records(plan: pd.DataFrame, rates: Mapping[str, float]) -> pd.DataFrame:
    """A row for each run_id of ``rates``: tokens/s/GPU that other cells predict. Marked as predicted."""
    runs = plan[plan["run_id"].isin(list(rates))].reset_index(drop=True)
    per_second = runs["run_id"].map(rates).astype(float) * runs["gpus"].astype(float)
    return _as_records(runs, runs["global_batch_tokens"].astype(float) / per_second)


def with_predictions(records: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """The records, and the predicted rows of the cells in which no run succeeded."""
    import pandas as pd

    known = records[records["outcome"] == "ok"]
    measured = set(zip(known["model"].astype(str), known["nodes"].astype(int), strict=True))
    cells = zip(predicted["model"].astype(str), predicted["nodes"].astype(int), strict=True)
    new = predicted[[cell not in measured for cell in cells]]
    return pd.concat([records.assign(predicted=False), new], ignore_index=True) if len(new) else records


def _as_records(runs: pd.DataFrame, step_s: pd.Series[float]) -> pd.DataFrame:
    """Rows of a plan as records of these step times."""
    rate = runs["global_batch_tokens"].astype(float) / step_s
    peak = runs["predicted_peak_bytes"].astype(float)
    worded = {name: runs[name].astype(str) for name in ("model", "recompute", "pp_schedule", "dtype", "params", "env")}
    plain = runs.drop(columns=["status", "reasons", "run_json"])
    made: pd.DataFrame = plain.assign(
        **worded,
        outcome="ok",
        final=True,
        predicted=True,
        peak_memory_bytes=np.where(peak.notna(), peak, np.nan),
        memory_kind="predicted, as torch counts it",
        step_time_median_s=step_s,
        tokens_per_second=rate,
        tokens_per_second_per_gpu=rate / runs["gpus"].astype(float),
    )
    return made
