"""What a search may have missed by the runs that it left out, per cell and as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analysis.tables import places_text

if TYPE_CHECKING:
    import pandas as pd

Missed = Mapping[str, float]
"""runs: number left out; gain: expected, of all of them, as a logarithm; chance: that one is over 3 % faster"""


def missed_by_cell(plan: pd.DataFrame | None) -> dict[tuple[str, int], Missed]:
    """(model, nodes) -> what its skipped runs may have been. ``plan``: `analysis.load_plan`.

    The runs' errors are taken as independent. They are not, so the chance is rather too large.
    """
    if plan is None or "chance" not in plan:
        return {}
    found: dict[tuple[str, int], Missed] = {}
    for (model, nodes), left in plan[plan["chance"].notna()].groupby(["model", "nodes"]):
        chance = 1 - float(np.prod(1 - left["chance"].to_numpy(dtype=np.float64)))
        found[str(model), int(nodes)] = {"runs": len(left), "gain": float(left["gain"].sum()), "chance": chance}
    return found


def missed_text(cells: Mapping[tuple[str, int], Missed]) -> str | None:
    """What may have been missed in the worst of the cells; None where none may be better."""
    if not any(missed["chance"] for missed in cells.values()):
        return None
    runs = sum(int(missed["runs"]) for missed in cells.values())
    worst = max(cells, key=lambda cell: (cells[cell]["chance"], cells[cell]["gain"]))
    chance, gain = cells[worst]["chance"], cells[worst]["gain"]
    return (
        f"Runs left out by prediction: {runs:,}. The chance that one of them is over 3 % faster than its cell's "
        f"best is at most {chance:.1%} ({places_text([worst], most=1)}), with an expected gain of {gain:.1%}."
    )
