"""Configurations that no other beats in both memory and throughput. Pure pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.derive.best import measured
from analysis.metrics import METRICS, Metric


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
