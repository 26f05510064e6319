"""How throughput grows with nodes: efficiency, Amdahl's law, and what a pipeline's bubble costs. Pure pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.derive.best import CELL, best_per_cell, completed, measured
from analysis.metrics import METRICS
from sweep.contract import FREE
from sweep.physics.sizing import Scaling, fit_scaling

SAME = ("model", "nodes", *(name for name in FREE if name != "pp"), "dtype")


def scaling(records: pd.DataFrame) -> pd.DataFrame:
    """The best configuration of each (model, nodes) by tokens/s/GPU, and how well it scales.

    Columns: model, nodes, gpus, tokens_per_second, tokens_per_second_per_gpu (value, low, high) and ``efficiency``:
    tokens/s/GPU over that of the model's fewest nodes. Sorted by model and nodes.
    """
    best = best_per_cell(records)
    if best.empty:
        return best.assign(efficiency=pd.Series(dtype=float))
    best = best.sort_values(CELL).reset_index(drop=True)
    per_node = best["gpus_per_node"].astype(float).fillna(1.0)
    gpus = best["gpus"].astype(float).fillna(best["nodes"].astype(float) * per_node)
    first = best.groupby("model")["value"].transform("first")
    return best.assign(
        gpus=gpus,
        tokens_per_second=best["value"] * gpus,
        tokens_per_second_per_gpu=best["value"],
        efficiency=best["value"] / first,
    )


def amdahl(table: pd.DataFrame) -> dict[str, Scaling]:
    """Amdahl's law through each model's curve; models with fewer than three node counts have none.

    Two points always fit: only a third can contradict the law.
    """
    fits = {}
    for model, rows in table.groupby("model"):
        if rows["gpus"].nunique() >= 3:
            fits[str(model)] = fit_scaling(rows["gpus"].tolist(), rows["tokens_per_second"].tolist())
    return fits


def bubble(records: pd.DataFrame) -> dict[str, Any] | None:
    """How much of the ideal bubble pipelines pay: the slope k in step time ~ 1 + k (pp - 1) / grad_accum.

    Configurations equal but for pp, dp and grad_accum are compared, each group with its own constant (the logarithm
    of the step time per token against the logarithm of 1 + bubble). 1 is the ideal 1F1B schedule (arXiv 2104.04473,
    sec. 2.2.1); more than 1 says that communication adds to it. None where no group varies.
    """
    rows = measured(completed(records), METRICS["tokens_per_second_per_gpu"])
    rows = rows.dropna(subset=["pp", "grad_accum"])
    x = np.log1p((rows["pp"].astype(float) - 1) / rows["grad_accum"].astype(float))
    y = -np.log(rows["value"].astype(float))
    group = rows.groupby(list(SAME), sort=False, dropna=False).ngroup()
    x, y = x - x.groupby(group).transform("mean"), y - y.groupby(group).transform("mean")
    spread = float((x**2).sum())
    if spread < 1e-6 or len(rows) < 3:
        return None
    slope = float((x * y).sum() / spread)
    rest = float(((y - slope * x) ** 2).sum())
    return {"slope": slope, "configurations": len(rows), "explained": 1 - rest / max(float((y**2).sum()), 1e-12)}
