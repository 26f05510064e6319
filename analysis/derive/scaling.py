"""How throughput grows with nodes: efficiency, Amdahl's law. Pure pandas."""

from __future__ import annotations

import pandas as pd

from analysis.derive.best import CELL, best_per_cell
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
