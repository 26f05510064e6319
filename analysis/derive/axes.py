"""What each axis of the layout does to the metric: by degree, and what fixing it would cost. Pure pandas."""

from __future__ import annotations

import pandas as pd

from analysis.derive.best import CELL, completed, measured
from analysis.metrics import METRICS, Metric

AXES: dict[str, str] = {
    "tp": "tensor parallel (TP)",
    "pp": "pipeline parallel (PP)",
    "dp": "data parallel (DP)",
    "cp": "context parallel (CP)",
    "ep": "expert parallel (EP)",
    "micro_batch_size": "micro-batch size (MBS)",
    "grad_accum": "accumulation (GAS)",
    "zero": "ZeRO stage",
    "recompute": "recomputation",
    "dtype": "dtype",
    "compile": "torch.compile",
}
"""record column -> its label on an axis"""

SHORT = {"micro_batch_size": "MBS", "grad_accum": "GAS", "zero": "ZeRO", "pp_schedule": "schedule"}


def short_name(axis: str) -> str:
    """TP, MBS, ZeRO, recompute: an axis where there is little room."""
    return SHORT.get(axis, axis.upper() if len(axis) == 2 else axis)


def comparable_metric(records: pd.DataFrame) -> Metric | None:
    """What lets configurations of several models be compared: MFU, else the source's, else TFLOP/s, else tokens/s/GPU.

    None where nothing was measured.
    """
    for name in ("mfu", "reported_mfu", "tflops_per_gpu", "tokens_per_second_per_gpu"):
        rows = measured(records, METRICS[name])
        best = measured(records, METRICS["tokens_per_second_per_gpu"])
        if len(rows) and len(rows) >= 0.9 * len(best):
            return METRICS[name]
    return None


def varied_axes(rows: pd.DataFrame) -> list[str]:
    """The axes that have more than one value in the rows."""
    return [name for name in AXES if name in rows and rows[name].nunique(dropna=True) > 1]


def sensitivity(records: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """What fixing one axis at one value costs, per cell and over cells.

    For each cell and each value that was measured there, the best configuration with that value is set against the
    best of the cell: ``loss`` is 1 - best with it / best of all, 0 where the best has it. Columns: axis, value,
    cells (where the value was measured), missing (cells without it), median, worst, wins (cells whose best has it).
    """
    rows = measured(completed(records), metric)
    rows = rows[rows["value"] > 0]
    cells = rows.groupby(CELL)["value"]
    best = cells.transform("max" if metric.higher_is_better else "min")
    rows = rows.assign(ratio=rows["value"] / best if metric.higher_is_better else best / rows["value"])
    tables = [pd.DataFrame(columns=["axis", "value", "cells", "missing", "median", "worst", "wins"])]
    for axis in varied_axes(rows):
        loss = 1 - rows.groupby([*CELL, axis])["ratio"].max().astype(float)
        of_value = loss.groupby(level=axis).agg(
            cells="size", median="median", worst="max", wins=lambda losses: int((losses <= 0).sum())
        )
        values = of_value.index.astype(str)
        tables.append(of_value.assign(axis=axis, value=values, missing=cells.ngroups - of_value["cells"]))
    table: pd.DataFrame = pd.concat(tables[1:] or tables, ignore_index=True)
    return table[list(tables[0].columns)]
