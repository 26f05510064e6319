"""What was predicted against what was measured: peak memory and step time. Pure pandas and numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.derive.best import completed, counting, succeeded, truth
from sweep.contract import LAYOUT_NUMBERS, LAYOUT_WORDS
from sweep.physics import memory, step_time
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import profile_of
from sweep.physics.shapes import ModelShape

if TYPE_CHECKING:
    import pandas as pd

QUANTITIES: dict[str, tuple[str, str]] = {
    "memory": ("predicted_peak_bytes", "peak_memory_bytes"),
    "time": ("predicted_step_s", "step_time_median_s"),
}
"""quantity -> (column of what was predicted, column of what was measured)"""

NUMBERS = (*LAYOUT_NUMBERS, "sequence_length", "gpus_per_node")
LARGEST = 2**31
"""of them, beyond which a record states no layout"""
WORDS = (*LAYOUT_WORDS, "dtype")


def predictions(records: pd.DataFrame, plan: pd.DataFrame | None) -> pd.DataFrame:
    """The runs that succeeded, with what was predicted next to what was measured.

    The plan's own predictions, made before the run, count; where the results came without a plan, or it has none,
    the models of ``sweep.physics`` predict from the record's shape and layout. Column ``predicted_by``: the source.
    Simulated runs are left out: their times are predictions themselves.
    """
    rows = counting(completed(records))
    rows = rows[succeeded(rows) & ~truth(rows["simulated"])].reset_index(drop=True)
    wanted = [name for name, _ in QUANTITIES.values()]
    if plan is not None and "run_id" in plan:
        runs = plan.dropna(subset=["run_id"]).drop_duplicates("run_id").reindex(columns=["run_id", *wanted])
        joined = rows.drop(columns=wanted, errors="ignore").merge(runs, on="run_id", how="left")
        known = joined[wanted].notna().any(axis=1)
        if known.any():
            planned: pd.DataFrame = joined[known].reset_index(drop=True)
            return planned.assign(predicted_by="the plan").astype(dict.fromkeys(wanted, float))
    return predict_by_physics(rows).assign(predicted_by="the physics models, from the record")


def errors(rows: pd.DataFrame, quantity: str) -> pd.Series[float]:
    """Predicted / measured - 1 of each row that has both."""
    predicted, measured_ = (rows[name].astype(float) for name in QUANTITIES[quantity])
    ratio: pd.Series[float] = predicted / measured_ - 1
    sound = np.isfinite(ratio.to_numpy(float)) & (predicted > 0).to_numpy() & (measured_ > 0).to_numpy()
    return ratio[sound]


def predict_by_physics(rows: pd.DataFrame) -> pd.DataFrame:
    """Records with columns predicted_peak_bytes and predicted_step_s of the models of ``sweep.physics``; else NaN."""
    peak, step = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    needed = [name for name in ("shape_json", *NUMBERS, *WORDS) if name in rows]
    whole = rows[needed].notna().all(axis=1) & ("shape_json" in rows)
    whole &= rows.get("shape_json", "{}") != "{}"
    for name in {*NUMBERS} & {*rows}:
        whole &= (rows[name] >= (name != "zero")) & (rows[name] < LARGEST)
    keys = ["workload", "params_json", "gpu", "compile"]
    for key, part in rows[whole].groupby([k for k in keys if k in rows], sort=False, dropna=False):
        named = dict(zip([k for k in keys if k in rows], key, strict=True))
        at = part.index.to_numpy()
        peak[at], step[at] = _predict(part, named)
    return rows.assign(predicted_peak_bytes=peak, predicted_step_s=step)


def _predict(part: pd.DataFrame, named: Mapping[str, Any]) -> tuple[Any, Any]:
    """Peak bytes and step seconds of rows of one workload on one kind of GPU; nan where unknown."""
    params = json.loads(named["params_json"]) if isinstance(named.get("params_json"), str) else {}
    profile = profile_of(str(named["workload"]), params, compiled=named.get("compile") is True)
    if profile is None:
        return np.nan, np.nan
    columns = {k: v for k, v in params.items() if isinstance(v, (int, float, str, bool))} | columns_of(part)
    with np.errstate(all="ignore"):
        peak = memory.peak_bytes(columns, profile)
        gpu = GPUS.get(str(named.get("gpu")).lower())
        step = np.nan if gpu is None else step_time.step_time_s(columns, gpu, profile)
        known = [gpu is not None and gpu.peak_flops(dtype) is not None for dtype in part["dtype"]]
    return peak, np.where(known, step, np.nan)  # without a peak the seconds are nominal: they only order runs


def columns_of(rows: pd.DataFrame) -> dict[str, Any]:
    """Records as the columns that ``sweep.physics`` reads: layout, batch and the fields of the shape."""
    shapes = {text: ModelShape.of(json.loads(text)).as_dict() for text in rows["shape_json"].unique()}
    fields = {f.name: np.asarray([shapes[text][f.name] for text in rows["shape_json"]]) for f in fields_of(ModelShape)}
    numbers = {name: rows[name].to_numpy(float) for name in NUMBERS}
    return fields | numbers | {name: rows[name].to_numpy(str) for name in WORDS}
