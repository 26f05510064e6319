"""From a cell's value to its colour, its legible text colour, and the colour bar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.metrics import DEFAULT_METRIC, METRICS, Metric, number, short
from analysis.text_fit import INK, SMALL, wrap

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = "viridis"
"""Even in lightness, so that it works in print and for every kind of colour vision"""

MIN_SPAN = 0.2
"""The scale spans at least this fraction of its maximum, so that small differences look small"""

Colour = tuple[float, float, float, float]


@dataclass(frozen=True)
class Scale:
    """A linear scale of colours."""

    low: float
    high: float
    factor: float
    """printed value = factor * value"""
    label: str

    def colour(self, value: float) -> Colour:
        """The colour of a value."""
        from matplotlib import colormaps

        colour: Colour = colormaps[PALETTE](self.place(value))
        return colour

    def place(self, value: float) -> float:
        """Position of a value on the scale, 0 to 1."""
        span = self.high - self.low
        return min(1.0, max(0.0, (value - self.low) / span)) if span > 0 else 0.0

    def ticks(self) -> list[tuple[float, str]]:
        """Round values on the scale with their texts; where only one is between its ends, the ends."""
        from matplotlib.ticker import MaxNLocator

        low, high = self.low * self.factor, self.high * self.factor
        found = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        slack = 1e-9 * abs(high)
        within = [float(value) for value in found if low - slack <= value <= high + slack]
        if len(within) < 2 or high - low <= slack:
            return [(value / self.factor, number(value)) for value in dict.fromkeys((low, high))]
        return [(value / self.factor, short(value)) for value in within]


def coloured(table: pd.DataFrame, metric: Metric) -> tuple[pd.DataFrame, Metric, Scale | None]:
    """(cells with columns ``shown`` and ``relative``, what they show, the scale of the measured ones or None).

    They show the metric; for tokens/s/GPU, which do not compare between models, the MFU where every cell has one.
    ``relative``: what colours a cell: the value, or where models do not compare, its fraction of the model's best.
    """
    best = table["status"] == "best"
    has_mfu = bool(best.any()) and bool(np.isfinite(table.loc[best, "mfu"].astype(float)).all())
    shown = METRICS["mfu"] if metric.name == DEFAULT_METRIC and has_mfu else metric
    table = table.assign(shown=shown.of(table))
    values = table["shown"].astype(float)
    if not shown.absolute:
        by_model = values.groupby([str(model).partition("@")[0] for model in table["model"]])  # of all node groups
        fractions = values / by_model.transform("max") if shown.better == 1 else by_model.transform("min") / values
        values = fractions.astype(float)
    table = table.assign(relative=values)
    if not best.any():
        return table, shown, None
    values = values[best]
    factor, of_model = (shown.factor, "") if shown.absolute else (100, " as % of the model's best over all node counts")
    high = float(values.max())
    low = min(float(values.min()), high * (1 - MIN_SPAN))
    return table, shown, Scale(low, high, factor, shown.label + of_model)


def ink_on(face: Colour) -> str:
    """Black or white, whichever contrasts more (relative luminance: WCAG 2)."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in face[:3])
    behind = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "white" if 1.05 / (behind + 0.05) > (behind + 0.05) / 0.05 else "black"


def draw_bar(figure: Figure, axes: Axes, scale: Scale, room_pt: float) -> None:
    """Draw the colour bar in ``axes``, with its label next to it in at most ``room_pt``."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    low, high = scale.low * scale.factor, scale.high * scale.factor
    ticks = scale.ticks()
    drawn = figure.colorbar(
        ScalarMappable(Normalize(low, high), PALETTE),
        cax=axes,
        orientation="horizontal",
        ticks=[value * scale.factor for value, _ in ticks],
    )
    drawn.ax.set_xticklabels([text for _, text in ticks])
    drawn.outline.set_visible(False)
    drawn.ax.tick_params(labelsize=SMALL, length=2, pad=1, colors=INK)
    label = "\n".join(wrap(scale.label.split(), room_pt, SMALL + 0.5))
    axes.annotate(
        label, (1, 0.5), xytext=(12, 0), xycoords="axes fraction", textcoords="offset points", va="center",
        fontsize=SMALL + 0.5, color=INK, annotation_clip=False,
    )  # fmt: skip
