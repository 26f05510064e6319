"""The best-configuration heatmap: models against node counts. Drawn to the width of a page, nothing cut.

Everything is measured before it is drawn: the width of the page fixes that of a cell, the text of the fullest cell
fixes the font size and the height of a row, and the texts around the cells fix the margins.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.derive.best import cells as derive_cells
from analysis.derive.best import completed, on_cpu, truth
from analysis.heatmap import caption
from analysis.heatmap.cell_text import groups, lines
from analysis.heatmap.colours import Scale, coloured, draw_bar, ink_on
from analysis.heatmap.page import LABEL, PADDING, Page, plan_page
from analysis.metrics import DEFAULT_METRIC, metric_named
from analysis.tables import as_rows, json_rows
from analysis.text_fit import FAINT, INK, LINE, MARGIN, Frame, Group
from sweep.errors import Mistake, SweepError
from sweep.files import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE_WIDTH_IN = 7.0
NARROWEST_IN, WIDEST_IN = 2.0, 60.0
AXIS = 27.0
"""Height of the node counts and their label, in points"""
BAR = 26.0
"""Height of the colour bar with its numbers, in points"""
EMPTY = "#f0f0f0"
FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Heatmap:
    """A drawn heatmap and the table that it shows."""

    figure: Figure
    cells: pd.DataFrame
    """one row per cell (``analysis.derive.best.cells``), with ``shown``, the value printed first, and ``relative``"""

    def rows(self) -> list[dict[str, Any]]:
        """The table as JSON values, a row per cell; missing is null."""
        return json_rows(self.cells)


def draw(
    records: pd.DataFrame,
    plan: pd.DataFrame | None = None,
    *,
    metric: str = DEFAULT_METRIC,
    keep: str | None = None,
    width_in: float = PAGE_WIDTH_IN,
) -> Heatmap:
    """The heatmap of records (``analysis.load``) and, for its blank cells, of the plan (``analysis.load_plan``).

    Cells have as much text as is legible at the width. ``metric``: ranks the configurations. ``keep``: an expression
    that records must meet.

    Raises SweepError where there is neither a record nor a candidate.
    """
    chosen = metric_named(metric)
    if not NARROWEST_IN <= width_in <= WIDEST_IN:
        remedy = f"between {NARROWEST_IN:g} and {WIDEST_IN:g}"
        raise SweepError(Mistake(f"{width_in:g} inches is no width for a figure", path="--width", remedy=remedy))
    records = completed(records)
    table = derive_cells(records, plan, metric, keep)
    if table.empty:
        raise SweepError(Mistake("nothing to draw: no record or plan has a cell", remedy="run the sweep first"))
    table, shown, scale = coloured(table, chosen)
    numbers, notes = caption.blank_notes(table[table["status"] != "best"])
    rows = caption.measured_rows(records, keep)
    marks = caption.marks_of(rows)
    if "some predicted" in marks:
        table = table.assign(marked=truth(table["predicted"]))
    cells, best = as_rows(table), table[table["status"] == "best"]

    def texts(level: str) -> list[Sequence[Group]]:
        return [groups(cell, chosen, shown, level) for cell in cells]

    for cell in cells:
        if note := numbers.get((str(cell["model"]), int(cell["nodes"]))):
            cell["label"] = f"{cell['label']} [{note}]"
    models = list(dict.fromkeys(str(cell["model"]) for cell in cells))
    page = plan_page(models, sorted({int(cell["nodes"]) for cell in cells}), texts, width_in * 72)
    about = " ".join(caption.key(best, chosen, shown, page.level)) if len(best) else ""
    held = [*caption.held_fixed(rows, best, chosen), *([f"only {keep}"] if keep else [])]
    title = "Best configuration per model and node count" + "".join(f" ({mark})" for mark in marks)
    frame = Frame(width_in * 72, title, held, (about, *(caption.MARKS[mark] for mark in reversed(marks)), *notes))
    return Heatmap(_figure(frame, page, cells, texts(page.level), scale, rows), table)


def save_figure(figure: Figure, path: Path) -> None:
    """Write an image, whole or not at all; the file extension chooses PNG, SVG or PDF.

    Raises SweepError for another extension, OSError where the path cannot be written.
    """
    import matplotlib as mpl

    check_format(path)
    kind = path.suffix.lower()
    undated: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(kind, {})
    image = io.BytesIO()
    dpi = max(60, min(220, int(30_000 / max(figure.get_size_inches()))))  # what PNG writers and viewers support
    with mpl.rc_context({"svg.hashsalt": "sweep", "pdf.fonttype": 42}):
        figure.savefig(image, format=kind[1:], dpi=dpi, metadata=undated)
    write_whole(path, image.getvalue())


def check_format(path: Path) -> None:
    """Raises SweepError where the file extension is no image format."""
    if path.suffix.lower() not in FORMATS:
        raise SweepError(
            Mistake("unknown picture format", file=str(path), remedy=f"end the name in {', '.join(FORMATS)}")
        )


def _figure(
    frame: Frame,
    page: Page,
    cells: Sequence[Mapping[str, Any]],
    texts: Sequence[Sequence[Group]],
    scale: Scale | None,
    rows: pd.DataFrame,
) -> Figure:
    """``texts``: of the cells. ``rows``: the measured records."""
    from matplotlib.figure import Figure as MatplotlibFigure

    bottom = frame.below + AXIS + (BAR if scale else 0.0)
    width, height = frame.width, frame.above + (LABEL * LINE + 3) * page.tall + page.cells_height + bottom
    figure = MatplotlibFigure(figsize=(width / 72, height / 72), facecolor="white")
    frame.write(figure)
    axes = figure.add_axes(_box(page.left, bottom, page.cell_width * len(page.nodes), page.cells_height, width, height))
    _draw_cells(axes, page, cells, texts, scale)
    _label_axes(axes, rows, page)
    if scale is not None:
        bar = figure.add_axes(_box(page.left, frame.below + 16, 150, 6, width, height))
        draw_bar(figure, bar, scale, width - page.left - 170 - MARGIN)
    return figure


def _box(
    left: float, bottom: float, wide: float, high: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """From points to fractions of the figure."""
    return left / width, bottom / height, wide / width, high / height


def _draw_cells(
    axes: Axes, page: Page, cells: Sequence[Mapping[str, Any]], texts: Sequence[Sequence[Group]], scale: Scale | None
) -> None:
    from matplotlib.collections import PolyCollection

    corners, faces = [], []
    for cell, words in zip(cells, texts, strict=True):
        x, y = page.nodes.index(int(cell["nodes"])), page.models.index(str(cell["model"]))
        face = scale.colour(float(cell["relative"])) if scale and cell["status"] == "best" else None
        corners.append([(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)])
        faces.append(face or EMPTY)
        text = lines(words, page.cell_width - 2 * PADDING, page.type_size)
        step = page.type_size * LINE / page.cell_height
        first = y + 0.5 - step * (len(text) - 1) / 2
        for at, line in enumerate(text):
            axes.text(
                x + 0.5,
                first + at * step,
                line,
                ha="center",
                va="center_baseline",
                fontsize=page.type_size,
                fontweight="bold" if face and at == 0 else "normal",
                color=ink_on(face) if face else FAINT,
                parse_math=False,
            )
    axes.add_collection(PolyCollection(corners, facecolors=faces, edgecolors="white", linewidths=0.8))
    axes.set_xlim(0, len(page.nodes))
    axes.set_ylim(len(page.models), 0)


def _label_axes(axes: Axes, rows: pd.DataFrame, page: Page) -> None:
    size, every = page.node_type
    at = range(0, len(page.nodes), every)
    axes.set_xticks([x + 0.5 for x in at], [str(page.nodes[x]) for x in at], fontsize=size)
    labels = [page.label(model) for model in page.models]
    axes.set_yticks([at + 0.5 for at in range(len(page.models))], labels, fontsize=LABEL)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    per_node = sorted({int(n) for n in rows["gpus_per_node"].dropna()})
    unit = "rank" if on_cpu(rows) else "GPU"
    each = f" (of {per_node[0]} {unit}{'s' * (per_node[0] != 1)} each)" if len(per_node) == 1 else ""
    axes.set_xlabel(f"nodes{each}", fontsize=LABEL, labelpad=2, color=INK)
    axes.tick_params(length=0, pad=3, colors=INK, labeltop=page.tall)
    for side in axes.spines.values():
        side.set_visible(False)
