"""What each axis of the layout does to the metric: by degree. Pure pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.derive.best import measured
from analysis.metrics import METRICS, Metric
from sweep.contract import FORMATS

if TYPE_CHECKING:
    import pandas as pd

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


def comparable_metric(records: pd.DataFrame) -> Metric | None:
    """What lets configurations of several models be compared: MFU, else the source's, else TFLOP/s, else tokens/s/GPU.

    Number formats have different peaks, so with several MFU compares nothing. None where nothing was measured.
    """
    best = measured(records, METRICS["tokens_per_second_per_gpu"])
    formats = {FORMATS.get(dtype, dtype) for dtype in best["dtype"].dropna()} if "dtype" in best else ()
    for name in ("mfu", "reported_mfu", "tflops_per_gpu", "tokens_per_second_per_gpu")[2 * (len(formats) > 1) :]:
        rows = measured(records, METRICS[name])
        if len(rows) and len(rows) >= 0.9 * len(best):
            return METRICS[name]
    return None


def varied_axes(rows: pd.DataFrame) -> list[str]:
    """The axes that have more than one value in the rows."""
    return [name for name in AXES if name in rows and rows[name].nunique(dropna=True) > 1]
