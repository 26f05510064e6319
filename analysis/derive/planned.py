"""A plan's predictions in the form of records: what the step-time model expects of each run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sweep.contract import FURTHER
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    import pandas as pd


SAME_FLOPS = ["model", "sequence_length", "dtype"]
"""what the FLOPs per token and the GPU's peak FLOP/s depend on, on one kind of GPU: MFU is proportional to the rate"""


def predicted_records(plan: pd.DataFrame, factors: Mapping[str, float] | None = None) -> pd.DataFrame:
    """A row per run of a plan (all columns of ``sweep.planning.table.SCHEMA``) with predicted speed and memory.

    Column ``predicted`` is true: figures made of these rows are marked. ``factors``: run_id -> by what factor 1 in 20
    runs is slower than predicted, and 1 in 20 faster; the interval of step times is theirs. Raises SweepError where
    nothing is predicted.
    """
    runs = plan[plan["run_id"].notna() & plan["predicted_step_s"].notna()].reset_index(drop=True)
    if runs.empty:
        fact = "no run of the plan has a predicted step time: the GPU's speed or the workload's memory is not known"
        raise SweepError(Mistake(fact, remedy="name the site's gpu, such as h100; or measure"))
    step, factor = runs["predicted_step_s"].astype(float), runs["run_id"].map(factors or {}).astype(float)
    made = _as_records(runs, step, step / factor, step * factor)
    # A plan puts a run last whose memory is over, though by less than the model's error: it is not the predicted best.
    first = made.sort_values("position").groupby(["model", "nodes"])["tokens_per_second"].transform("first")
    return made[made["tokens_per_second"] <= first].reset_index(drop=True)


def learned_records(plan: pd.DataFrame, rates: Mapping[str, tuple[float, float, float]]) -> pd.DataFrame:
    """A row for each run_id of ``rates``: tokens/s/GPU that other cells predict, and the low and the high end of 9 of
    10 such predictions. Marked as predicted.
    """
    runs = plan[plan["run_id"].isin(list(rates))].reset_index(drop=True)
    expected, low, high = np.array([rates[run_id] for run_id in runs["run_id"]], dtype=float).reshape(-1, 3).T
    step = runs["global_batch_tokens"].astype(float) / (expected * runs["gpus"].astype(float))
    return _as_records(runs, step, step * expected / high, step * expected / low)


def with_predictions(records: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    """The records, and the predicted rows of the cells in which no run succeeded.

    Their MFU follows from the rate where a run of the same model, sequence length and number format was measured, and
    all on one kind of GPU.
    """
    import pandas as pd

    known = records[records["outcome"] == "ok"]
    measured = set(zip(known["model"].astype(str), known["nodes"].astype(int), strict=True))
    cells = zip(predicted["model"].astype(str), predicted["nodes"].astype(int), strict=True)
    new = predicted[[cell not in measured for cell in cells]]
    if new.empty:
        return records
    if {*SAME_FLOPS, "gpu"} <= set(known) and known["gpu"].nunique() == 1:
        per_rate = known["mfu"].astype(float) / known["tokens_per_second_per_gpu"].astype(float)
        shares = per_rate.groupby([known[name].astype(str) for name in SAME_FLOPS]).median()
        of_new = pd.MultiIndex.from_frame(new[SAME_FLOPS].astype(str))
        new = new.assign(mfu=shares.reindex(of_new).to_numpy() * new["tokens_per_second_per_gpu"].to_numpy(float))
    return pd.concat([records.assign(predicted=False), new], ignore_index=True)


def _as_records(
    runs: pd.DataFrame, step_s: pd.Series[float], fast_s: pd.Series[float], slow_s: pd.Series[float]
) -> pd.DataFrame:
    """Rows of a plan as records of these step times, and of the ends of their intervals."""
    rate = runs["global_batch_tokens"].astype(float) / step_s
    peak = runs["predicted_peak_bytes"].astype(float)
    worded = {name: runs[name].astype(str) for name in ("model", "recompute", "pp_schedule", "dtype", "params", "env")}
    plain = runs.drop(columns=["status", "reasons", "run_json"])
    stated = [json.loads(text) for text in runs["further"].astype(object).fillna("{}")] if "further" in runs else []
    return plain.assign(
        **worded,
        **{name: [further.get(name, value) for further in stated] for name, value in FURTHER.items() if stated},
        outcome="ok",
        final=True,
        predicted=True,
        peak_memory_bytes=np.where(peak.notna(), peak, np.nan),
        memory_kind="predicted, as torch counts it",
        step_time_median_s=step_s,
        step_time_min_s=fast_s,
        step_time_max_s=slow_s,
        tokens_per_second=rate,
        tokens_per_second_per_gpu=rate / runs["gpus"].astype(float),
    )
