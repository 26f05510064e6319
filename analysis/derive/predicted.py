"""What the models of ``sweep.physics`` predict for records: peak memory and step time. Pure pandas and numpy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Any

import numpy as np

from sweep.contract import LAYOUT_NUMBERS, LAYOUT_WORDS
from sweep.physics import memory, step_time
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import profile_of
from sweep.physics.shapes import ModelShape

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = (*LAYOUT_NUMBERS, "sequence_length", "gpus_per_node")
LARGEST = 2**31
"""of them, beyond which a record states no layout"""
WORDS = (*LAYOUT_WORDS, "dtype")


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
