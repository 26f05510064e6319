"""How throughput grows with nodes (efficiency, Amdahl's law), and what no other configuration beats in two values. Pure
pandas.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.derive.best import CELL, best_per_cell, measured
from analysis.metrics import METRICS, Metric
from sweep.physics.sizing import Scaling, fit_scaling


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


def memory_against(records: pd.DataFrame, metric: Metric = METRICS["tokens_per_second_per_gpu"]) -> pd.DataFrame:
    """The measured configurations that state a peak memory, each marked whether it is on its cell's front.

    Adds ``peak`` (bytes) and ``front`` to the columns of ``derive.measured``.
    """
    rows = measured(records, metric)
    rows = rows.assign(peak=rows["peak_memory_bytes"].astype(float))
    rows = rows[np.isfinite(rows["peak"].to_numpy(float)) & (rows["peak"] > 0) & rows["stopped"].isna()].reset_index(
        drop=True
    )
    on_front: pd.Series[bool] = pd.Series(False, index=rows.index)
    for _, cell in rows.groupby(["model", "nodes"]):
        on_front.loc[front(cell["peak"], cell["value"], higher=metric.higher_is_better)] = True
    return rows.assign(front=on_front)


def front(peak: pd.Series[float], value: pd.Series[float], *, higher: bool = True) -> pd.Index:
    """The points that no other beats: less memory at no worse value, or a better value in no more memory."""
    gain = value if higher else -value
    order = pd.DataFrame({"peak": peak, "gain": gain}).sort_values(["peak", "gain"], ascending=[True, False])
    before = order["gain"].cummax().shift(fill_value=-np.inf)
    return order.index[order["gain"] > before]
