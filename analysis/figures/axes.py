"""Box plots of efficiency by the degree of each axis: the playbook's figure of what TP, PP, DP and MBS do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis import derive, derive_axes
from analysis.figures import style
from analysis.figures.data import LackingError, Tables

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.metrics import Metric

MOST_PANELS = 8
MOST_VALUES = 12


def draw(tables: Tables) -> Figure:
    """One panel per axis that was varied; a box per value over all configurations measured with it."""
    metric = derive_axes.comparable_metric(tables.records)
    if metric is None:
        raise LackingError("no run has a throughput or MFU yet")
    rows = derive.measured(tables.records, metric)
    axes_names = derive_axes.varied_axes(rows)[:MOST_PANELS]
    if not axes_names:
        raise LackingError("no axis has two values among the measured configurations")
    values = _comparable(rows, metric)
    columns = min(4, len(axes_names))
    crowded = any(rows[name].nunique() > MOST_VALUES for name in axes_names)
    many = -(-len(axes_names) // columns)
    made = style.sheet(
        f"{_label(metric).split(' (')[0]} by the degree of each axis",
        held=[f"{len(rows):,} configurations, all models and node counts together", *style.held_fixed(rows)],
        notes=[
            "Box: quartiles and median; whiskers: 5th and 95th percentile; dot: the best. Under each box: its value, "
            "and how many configurations have it. Axes vary together: a box shows what came with a value, not what "
            "it caused.",
            *[f"Of an axis with more than {MOST_VALUES} values, those that were measured most."] * crowded,
        ],
        simulated=style.simulated(rows),
        rows=many,
        columns=columns,
        height_in=2.0 * many,
        sharey=True,
    )
    for axes, name in zip(made.axes, axes_names, strict=False):
        _draw_axis(axes, rows[name], values, derive_axes.AXES[name])
    for axes in made.axes[len(axes_names) :]:
        axes.set_visible(False)
    for axes in made.axes[::columns]:
        axes.set_ylabel(_label(metric))
    return made.figure


def _label(metric: Metric) -> str:
    return metric.label if metric.absolute else f"{metric.label} (% of its cell's best)"


def _comparable(rows: pd.DataFrame, metric: Metric) -> pd.Series[float]:
    """The metric as printed; where models do not compare, as % of the best of the cell."""
    value = rows["value"].astype(float)
    if metric.absolute:
        return value * metric.factor
    return 100 * value / value.groupby([rows["model"], rows["nodes"]]).transform("max")


def _draw_axis(axes: Axes, degree: pd.Series, values: pd.Series[float], title: str) -> None:
    groups = {key: part for key, part in values.groupby(degree, sort=True) if len(part)}
    most = sorted(groups, key=lambda key: -len(groups[key]))[:MOST_VALUES]
    kept = [key for key in groups if key in most]
    looks = {"linewidth": 0.7, "color": style.INK}
    axes.boxplot(
        [groups[key] for key in kept],
        whis=(5, 95),
        widths=0.62,
        showfliers=False,
        patch_artist=True,
        boxprops={"facecolor": "#b3d4ea", "linewidth": 0.7, "edgecolor": style.INK},
        medianprops={"linewidth": 1.3, "color": style.BAD},
        whiskerprops=looks,
        capprops=looks,
    )
    axes.plot(range(1, len(kept) + 1), [groups[key].max() for key in kept], ".", color=style.INK, markersize=4)
    labels = [f"{_text(key)}\n{len(groups[key])}" for key in kept]
    axes.set_xticks(range(1, len(kept) + 1), labels, fontsize=style.SMALL if len(kept) < 8 else style.SMALL - 1)
    axes.set_ylim(bottom=0)
    style.ruled(axes)
    style.panel_title(axes, title)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
