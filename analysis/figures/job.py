"""Where a training day goes: useful steps, checkpoints, lost work, restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.derive.best import best_per_cell, is_simulated
from analysis.derive.job import DAY, day_of, rate_text
from analysis.figures import style
from analysis.heatmap.caption import held_fixed
from analysis.metrics import JOB

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 24
COLOURS = dict(zip(DAY, (*style.COLOURS[:6], style.COLOURS[-1]), strict=True))


def draw(records: pd.DataFrame) -> Figure:
    """Left: the whole day of the best configuration of each cell. Right: what of it does not train, enlarged."""
    found = best_per_cell(records, JOB)
    if found.empty:
        raise style.LackingError("no run wrote a checkpoint; params: {checkpoint: async} measures one")
    best = found.head(MOST_ROWS)
    hours, rates = 24 * day_of(best), dict.fromkeys(map(rate_text, best.to_dict("records")))
    figure = style.sheet(
        "Where a training day goes",
        held=["best configuration by tokens per GPU-day of a job with failures", *held_fixed(best)],
        notes=[f"{'; '.join(rates)}."] + [f"The first {MOST_ROWS} of {len(found)} cells."] * (len(found) > MOST_ROWS),
        simulated=is_simulated(best),
        columns=2,
        width_ratios=[1, 2],
        height_in=1.0 + 0.2 * len(best),
    )
    left, right = figure.axes
    _bars(left, hours, DAY)
    _bars(right, 60 * hours, DAY[1:])
    cells = zip(best["model"], best["nodes"].astype(int), strict=True)
    style.row_labels(left, [f"{model}, {nodes} node{'s' * (nodes != 1)}" for model, nodes in cells])
    style.row_labels(right, [f"{hour / 24:.1%} trains" for hour in hours[DAY[0]]])
    left.set_xticks(range(0, 25, 6))
    left.set_xlabel(f"{DAY[0]} (hours of a day)")
    right.set_xlabel("what does not train (minutes of a day)")
    style.legend(right, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0))
    return figure


def _bars(axes: Axes, parts: pd.DataFrame, names: tuple[str, ...]) -> None:
    begin = parts[DAY[0]] * 0
    for name in names:
        axes.barh(range(len(parts)), parts[name], left=begin, height=0.6, color=COLOURS[name], label=name)
        begin = begin + parts[name]
    style.ruled(axes, "x")
