"""The section on earlier sweeps of the same grid: each cell over time, and what became clearly worse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.compare import CellHistory, History
from analysis.figures import Drawn
from analysis.figures.history import date, draw
from analysis.report.figures import Picture, picture_of

CAPTION = "Each cell's best configuration over the sweeps, against the first; rings mark what is more than noise."


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """One cell of the heatmap in all sweeps."""

    model: str
    nodes: int
    values: tuple[tuple[str, str], ...]
    """(value, better, worse, lost or nothing: against the sweep before) of each sweep"""
    change: str
    """of the last against the first"""


@dataclass(frozen=True, kw_only=True)
class HistorySection:
    """What the page shows of it."""

    sweeps: tuple[tuple[str, str, str], ...]
    """(when it began, its name, what changed since the one before) of each, the oldest first"""
    label: str
    """of the metric, with its unit"""
    level: str
    """the chance of a false mark, as text"""
    cells: tuple[CellRow, ...]
    regressions: tuple[str, ...]
    picture: Picture | None


def section_of(found: History, *, picture: bool) -> HistorySection:
    """The section's texts, and its figure where wanted."""
    drawn = Drawn("history", CAPTION, draw(found), None) if picture else None
    return HistorySection(
        sweeps=tuple(_sweeps(found)),
        label=found.metric.label,
        level=f"{found.level:.2g}",
        cells=tuple(_row(cell, found) for cell in found.cells()),
        regressions=tuple(one.text(found.level) for one in found.regressions()),
        picture=None if drawn is None else picture_of(drawn),
    )


def _sweeps(found: History) -> Iterator[tuple[str, str, str]]:
    for at, (name, started_at) in enumerate(zip(found.names, found.started_at, strict=True)):
        changed = "; ".join(f"{what}: {before} → {now}" for what, before, now in found.changed(at))
        yield ("" if started_at is None else date(started_at)), name, changed


def _row(cell: CellHistory, found: History) -> CellRow:
    values = tuple(
        (found.metric.number(value), step.verdict if step is not None and step.changed else "")
        for value, step in zip(cell.values, cell.steps, strict=True)
    )
    return CellRow(model=cell.model, nodes=cell.nodes, values=values, change=cell.change(found.level))
