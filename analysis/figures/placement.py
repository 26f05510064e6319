"""What the choice of nodes does: repeats on several sets of nodes, by the grid's placement or by leaf switches."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.derive.axes import SHORT
from analysis.derive.best import is_simulated
from analysis.derive.placement import Spread, against_packed, by_node_set, placed, spread, widest
from analysis.figures import style
from analysis.text_fit import shortened
from sweep.contract import LAYOUT
from sweep.errors import natural
from sweep.physics.groups import PACKED
from sweep.physics.statistics import LEVEL

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 16
LABEL_PT = 130.0


def draw(records: pd.DataFrame) -> Figure:
    """Left: runs of each configuration against its median. Right: the same by set of nodes, the slowest first."""
    runs = placed(records)
    if runs.empty:
        raise style.LackingError("no configuration was measured on several sets of nodes")
    sets, configurations = by_node_set(runs), widest(runs, MOST_ROWS)
    rows = max(len(configurations) + _legend_rows(runs), min(len(sets), MOST_ROWS))
    figure = style.sheet(
        "What the choice of nodes does",
        held=[f"{len(runs)} runs of {runs['configuration'].nunique()} configurations on several sets of nodes"],
        notes=_notes(runs, sets),
        simulated=is_simulated(records),
        columns=2,
        height_in=max(1.6, 0.7 + 0.15 * rows),
    )
    left, right = figure.axes
    _draw_configurations(left, runs, configurations)
    _draw_sets(right, sets.head(MOST_ROWS))
    right.axvline(0, color=style.INK, linewidth=0.6)
    for axes in (left, right):
        axes.margins(x=0.08)
        style.ruled(axes, "x")
    return figure


def _draw_configurations(axes: Axes, runs: pd.DataFrame, configurations: Any) -> None:
    varied = [name for name in LAYOUT if runs[name].nunique(dropna=False) > 1]
    labels = []
    for at, number in enumerate(configurations):
        rows = runs[runs["configuration"] == number]
        labels.append(shortened(_label(rows.iloc[0].to_dict(), varied), LABEL_PT, style.SMALL))
        percent = 100 * (rows["ratio"].astype(float) - 1)
        axes.plot([percent.min(), percent.max()], [at, at], color="#b3d4ea", linewidth=1.2, zorder=1)
        for series, (_, shown) in enumerate(_kinds(runs)):
            values = percent[shown.loc[rows.index]]
            axes.plot(values, [at] * len(values), style.MARKERS[series], color=style.COLOURS[series], markersize=4)
    for series, (name, _) in enumerate(_kinds(runs)):
        axes.plot([], [], style.MARKERS[series], color=style.COLOURS[series], markersize=4, label=name)
    axes.vlines(0, -0.6, len(labels) - 0.4, color=style.INK, linewidth=0.6)  # not through the legend
    style.row_labels(axes, labels, below=_legend_rows(runs))
    axes.set_xlabel("speed against the median run (%)")
    style.legend(axes, loc="lower center", ncols=2)
    style.panel_title(axes, "each dot a run" + ("" if len(labels) < MOST_ROWS else ", widest spread first"))


def _label(row: Mapping[Hashable, Any], varied: Sequence[str]) -> str:
    """The configuration by what differs among those shown."""
    nodes = int(row["nodes"])
    layout = [f"{SHORT.get(name, name.upper() if len(name) == 2 else name)} {row[name]}" for name in varied]
    return " · ".join([f"{row['model']}", f"{nodes} node{'s' * (nodes != 1)}", *layout])


def _legend_rows(runs: pd.DataFrame) -> int:
    """Rows of the plot that the names of the series take."""
    return 1 + math.ceil(len(_kinds(runs)) / 2)


def _kinds(runs: pd.DataFrame) -> list[tuple[str, pd.Series[bool]]]:
    """The series: runs by the placement that was asked for, or by how many leaf switches their nodes are on."""
    if runs["asked"].nunique() > 1:
        names = sorted(runs["asked"].unique(), key=lambda name: (name != PACKED, natural(name)))
        return [(name, runs["asked"] == name) for name in names[: style.MOST_SERIES]]
    known = sorted({int(number) for number in runs["switches"].dropna()})
    found = [(f"{number} leaf switch{'es' * (number != 1)}", runs["switches"] == number) for number in known]
    if len(found) > style.MOST_SERIES - 1:
        last = known[style.MOST_SERIES - 2]
        found = [*found[: style.MOST_SERIES - 2], (f"{last} or more", runs["switches"] >= last)]
    unknown = runs["switches"].isna()
    return [*found, ("leaf switches not known", unknown)] if unknown.any() else found


def _draw_sets(axes: Axes, sets: pd.DataFrame) -> None:
    for at, row in enumerate(sets.to_dict("records")):
        low, middle, high = (100 * (row[name] - 1) for name in ("low", "ratio", "high"))
        axes.plot([low, high], [at, at], color=style.GOOD, linewidth=1.2, alpha=0.6)
        axes.plot(middle, at, "o", color=style.GOOD, markersize=4)
    labels = [
        f"{shortened(row['node_set'], LABEL_PT, style.SMALL)} · {row['runs']}×" for row in sets.to_dict("records")
    ]
    style.row_labels(axes, labels)
    axes.set_xlabel("speed against the median run (%)")
    style.panel_title(axes, "by set of nodes, the slowest first")


def _notes(runs: pd.DataFrame, sets: pd.DataFrame) -> list[str]:
    notes = [
        f"{name}: {abs(1 - ratio):.1%} {'slower' if ratio < 1 else 'faster'} than {PACKED} "
        f"(median of {count} configuration{'s' * (count != 1)})."
        for name, (ratio, count) in against_packed(runs).items()
    ]
    notes.append(spread_text(spread(runs)))
    notes.append("Median run: of the configuration. Right: median and range over the runs on these nodes (how many ×).")
    if len(sets) > MOST_ROWS:
        notes.append(f"The slowest {MOST_ROWS} of {len(sets)} sets of nodes.")
    if runs["configuration"].nunique() > MOST_ROWS:
        notes.append(f"The {MOST_ROWS} configurations whose runs differ most.")
    return notes


def spread_text(found: Spread) -> str:
    """What the runs say of the choice of nodes."""
    if math.isnan(found.within):
        return "No configuration ran twice on the same nodes: what the nodes do cannot be separated from chance."
    chance = "less than 0.001" if found.chance < 0.001 else f"{found.chance:.2g}"
    same = f"runs on the same nodes differ by {found.within:.2%} (standard deviation)"
    if found.chance < LEVEL:
        return f"The choice of nodes matters: it adds {found.between:.2%}; {same}. Chance of that by luck: {chance}."
    return f"No effect of the choice of nodes is shown: {same}; chance of these differences by luck: {chance}."
