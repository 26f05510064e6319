"""Analysis of records: tables, best configurations, figures. For scripts and notebooks.

import analysis
records = analysis.load("sweeps/ultrascale")       # a DataFrame, one row per attempt
records.attrs["units"]["step_time_median_s"]       # 's'
best = analysis.best_per_cell(records)             # one row per model and node count

It reads Parquet files, and never opens a sweep: ``sweep.records`` writes those files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.derive.best import best_per_cell as best_per_cell
    from analysis.derive.best import cells as cells
    from analysis.derive.planned import predicted_records as predicted_records
    from analysis.filters import keep as keep
    from analysis.heatmap.draw import draw as draw_heatmap  # noqa: F401 - another name than there
    from analysis.tables import load as load
    from analysis.tables import load_plan as load_plan

_PLACES = {
    "best_per_cell": ("analysis.derive.best", "best_per_cell"),
    "cells": ("analysis.derive.best", "cells"),
    "draw_heatmap": ("analysis.heatmap.draw", "draw"),
    "keep": ("analysis.filters", "keep"),
    "load": ("analysis.tables", "load"),
    "load_plan": ("analysis.tables", "load_plan"),
    "predicted_records": ("analysis.derive.planned", "predicted_records"),
}
__all__ = sorted(_PLACES)  # noqa: PLE0605 - each name is loaded when it is first asked for


def __dir__() -> list[str]:
    """The names, and the packages of figures and reports: for completion by tab."""
    return sorted([*__all__, "figures", "report"])


def __getattr__(name: str) -> Any:
    """Load pandas and matplotlib only when a function that needs them is accessed."""
    import importlib

    if name in ("figures", "report"):
        return importlib.import_module(f"analysis.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'analysis' has no attribute {name!r}")

    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(module), attribute)
