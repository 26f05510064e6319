"""What each axis does to efficiency: all measured configurations by degree of each axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.derive.axes import AXES, comparable_metric, varied_axes
from analysis.derive.best import is_simulated, measured
from analysis.figures import style
from analysis.heatmap.caption import held_fixed
from analysis.metrics import Metric
from analysis.text_fit import width_pt

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 8
LABEL = 5.75
"""Font size of values under boxes"""


def draw(records: pd.DataFrame) -> Figure:
    """One panel per axis that was varied; a box per value over all configurations measured with it."""
    metric = comparable_metric(records)
    if metric is None:
        raise style.LackingError("no run has a throughput or MFU yet")
    rows = measured(records, metric)
    axes_names = varied_axes(rows)[:MOST_PANELS]
    if not axes_names:
        raise style.LackingError("no axis has two values among the measured configurations")
    values = _comparable(rows, metric)
    columns = len(axes_names) if len(axes_names) < 5 else 3 if len(axes_names) < 7 else 4
    groups = {name: _groups(values, rows[name], columns) for name in axes_names}
    stopped = int(rows["stopped"].notna().sum())
    shortened = any(len(groups[name]) < rows[name].nunique() for name in axes_names)
    many = -(-len(axes_names) // columns)
    figure = style.sheet(
        f"{_label(metric).split(' (')[0]} by the degree of each axis",
        held=[f"{len(rows):,} configurations, all models and node counts together", *held_fixed(rows)],
        notes=[
            "Box: quartiles and median; whiskers: 5th and 95th percentile; dot: the best. Under each box: its value, "
            "and how many configurations have it. Axes vary together: a box shows what came with a value, not what it "
            "causes.",
            *["Of an axis with many values: the most measured ones."] * shortened,
            *[f"{stopped} had lost and were stopped: their figures are of few iterations."] * bool(stopped),
        ],
        simulated=is_simulated(rows),
        rows=many,
        columns=columns,
        height_in=2.0 * many,
        sharey=True,
    )
    for axes, name in zip(figure.axes, axes_names, strict=False):
        _draw_axis(axes, groups[name], AXES[name])
    for axes in figure.axes[len(axes_names) :]:
        axes.set_visible(False)
    for axes in figure.axes[::columns]:
        axes.set_ylabel(_label(metric))
    return figure


def _label(metric: Metric) -> str:
    return metric.label if metric.absolute else f"{metric.label} (% of its cell's best)"


def _comparable(rows: pd.DataFrame, metric: Metric) -> pd.Series[float]:
    """The metric as printed; where models do not compare, as % of the best of the cell."""
    value = rows["value"].astype(float)
    if metric.absolute:
        return value * metric.factor
    return 100 * value / value.groupby([rows["model"], rows["nodes"]]).transform("max")


def _groups(values: pd.Series[float], degree: pd.Series[Any], columns: int) -> dict[str, pd.Series[float]]:
    """Label -> the values of a box, in order of the degree: as many as their labels allow."""
    parts = values.groupby(degree, sort=True)
    named = ((f"{key:g}" if isinstance(key, float) else key, part) for key, part in parts if len(part))
    found = {f"{name}\n{len(part)}": part for name, part in named}
    room = (style.WIDTH_IN * 72 - 40) / columns - 8
    while len(found) > 1:
        widest = max(width_pt(line, LABEL) for label in found for line in label.split("\n"))
        if widest + 2 <= room / len(found):
            break
        del found[min(found, key=lambda label: len(found[label]))]
    return found


def _draw_axis(axes: Axes, groups: Mapping[str, pd.Series[float]], title: str) -> None:
    line_style = {"linewidth": 0.7, "color": style.INK}
    axes.boxplot(
        list(groups.values()),
        whis=(5, 95),
        widths=0.62,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": "#b3d4ea", "linewidth": 0.7, "edgecolor": style.INK},
        medianprops={"linewidth": 1.3, "color": style.BAD},
        whiskerprops=line_style,
        capprops=line_style,
    )
    places = range(1, len(groups) + 1)
    axes.plot(places, [values.max() for values in groups.values()], ".", color=style.INK, markersize=4)
    axes.set_xticks(places, list(groups), fontsize=LABEL)
    axes.set_ylim(bottom=0)
    style.ruled(axes)
    style.panel_title(axes, title)
