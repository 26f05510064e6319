"""The best-configuration heatmap: models against node counts. Drawn to the width of a page, nothing cut.

Everything is measured before it is drawn: the width of the page fixes that of a cell, the text of the fullest cell
fixes the font size and the height of a row, and the texts around the cells fix the margins.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis import caption
from analysis.celltext import LEVELS, groups, lines
from analysis.derive import cells as derive_cells
from analysis.metrics import DEFAULT_METRIC, METRICS, Metric, metric_named, number
from analysis.textfit import LINE, Fit, fit, paragraph, shortened, width_pt, wrap
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE_WIDTH_IN = 7.0
PAGE_HEIGHT_PT = 8.0 * 72
"""Height that the cells may take on one page"""
LONGEST_PT = 26.0 * 72
"""Height that they may take where one page does not do; beyond it, cells say less"""

LARGEST, SMALLEST = 8.5, 4.75
"""Font sizes in cells, in points"""
SMALL = 6.0
"""Font size of notes"""
LABEL = 7.5
"""Font size of models and node counts"""
MARGIN_PT = 8.0
INK, FAINT, EMPTY = "#1a1a1a", "#555555", "#f0f0f0"
FORMATS = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Heatmap:
    """A drawn heatmap and the table that it shows."""

    figure: Figure
    cells: pd.DataFrame
    """one row per square, as ``derive.cells`` gives them, and ``shown``: the value that is printed and coloured"""


@dataclass(frozen=True)
class _Sheet:
    """The measures of a figure, in points."""

    models: list[str]
    nodes: list[int]
    width: float
    left: float
    cell_width: float
    cell_height: float
    type_size: float
    level: str

    @property
    def cells_height(self) -> float:
        return self.cell_height * len(self.models)

    @property
    def room(self) -> float:
        """Width for text inside a cell."""
        return self.cell_width - 4.0


def draw(
    records: pd.DataFrame,
    plan: pd.DataFrame | None = None,
    *,
    metric: str = DEFAULT_METRIC,
    annotate: str = "auto",
    width_in: float = PAGE_WIDTH_IN,
) -> Heatmap:
    """The heatmap of records (``analysis.load``) and, for its blank cells, of the plan (``analysis.load_plan``).

    ``metric``: ranks the configurations. ``annotate``: auto (as much as is legible), full, brief, value or none.

    Raises SweepError where there is neither a record nor a candidate, or where the text cannot be legible.
    """
    chosen = metric_named(metric)
    if annotate not in ("auto", *LEVELS):
        raise SweepError(
            Mistake(f"unknown annotation {annotate!r}", path="--annotate", remedy=f"auto, {', '.join(LEVELS)}")
        )
    if records.empty and (plan is None or plan.empty):
        raise SweepError(Mistake("no records and no plan: there is nothing to draw", remedy="run the sweep first"))
    table = derive_cells(records, plan, metric)
    best = table[table["status"] == "best"]
    shown = _shown(best, chosen)
    table = table.assign(shown=shown.of(table))
    relative = table["shown"] if shown.absolute else _relative(table, shown)
    table = table.assign(relative=relative)
    figure = _figure(table, _measured_rows(records), chosen, shown, annotate, width_in)
    return Heatmap(figure, table)


def save(heatmap: Heatmap, path: Path, dpi: int = 220) -> None:
    """Write the picture; the ending of the name chooses PNG, SVG or PDF. The file appears whole or not at all.

    Raises SweepError for another ending, or where the place cannot be written.
    """
    check_format(path)
    aside = path.with_name(f".{path.name}.part{path.suffix}")
    metadata = {"Date": None} if path.suffix == ".svg" else {"CreationDate": None} if path.suffix == ".pdf" else {}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        import matplotlib as mpl

        with mpl.rc_context({"svg.hashsalt": "sweep", "pdf.fonttype": 42}):
            heatmap.figure.savefig(aside, dpi=_bearable(heatmap.figure, dpi), metadata=metadata)
        aside.rename(path)
    except OSError as error:
        raise SweepError(Mistake(f"cannot be written: {error.strerror}", file=str(path))) from error
    finally:
        aside.unlink(missing_ok=True)


def check_format(path: Path) -> None:
    """Raises SweepError where the name's ending is no picture format."""
    if path.suffix.lower() not in FORMATS:
        raise SweepError(
            Mistake("unknown picture format", file=str(path), remedy=f"end the name in {', '.join(FORMATS)}")
        )


def _bearable(figure: Figure, dpi: int) -> int:
    """A resolution at which no side exceeds what PNG writers and viewers bear."""
    return max(60, min(dpi, int(30_000 / max(figure.get_size_inches()))))


def _measured_rows(records: pd.DataFrame) -> pd.DataFrame:
    rows = records[records["outcome"] == "ok"] if "outcome" in records else records
    return rows if len(rows) else records


def _shown(best: pd.DataFrame, metric: Metric) -> Metric:
    """What colours and heads the cells: the metric, or for tokens/s/GPU the MFU where every cell has one."""
    has_mfu = "mfu" in best and len(best) > 0 and best["mfu"].notna().all()
    return METRICS["mfu"] if metric.name == DEFAULT_METRIC and has_mfu else metric


def _relative(table: pd.DataFrame, shown: Metric) -> pd.Series:
    """The value as a fraction of the model's best: rates of different models do not compare."""
    by_model = table.groupby("model", sort=False)["shown"]
    if shown.higher_is_better:
        return table["shown"] / by_model.transform("max")
    return by_model.transform("min") / table["shown"]


def _figure(
    table: pd.DataFrame, rows: pd.DataFrame, metric: Metric, shown: Metric, annotate: str, width_in: float
) -> Figure:
    from matplotlib.figure import Figure as MatplotlibFigure

    best, blanks = table[table["status"] == "best"], table[table["status"] != "best"]
    numbers, notes = caption.blank_notes(blanks)
    sheet = _sheet(table, metric, shown, annotate, width_in * 72, numbers)
    room = sheet.width - 2 * MARGIN_PT
    title = _title(rows, metric, room)
    simulated = caption.is_simulated(rows)
    if simulated:
        notes.insert(0, "simulated: no model was trained; ranks acted out a formula's step times.")
    about = " ".join(caption.key(best, metric, shown, sheet.level)) if len(best) else ""
    foot = [line for text in [about, *notes] if text for line in paragraph(text, room, SMALL)]
    top = MARGIN_PT + sum(size * LINE + 1 for _, size, _ in title) + 4
    bar = 34.0 if len(best) else 0.0
    bottom = 30.0 + bar + len(foot) * SMALL * LINE + MARGIN_PT
    height = top + sheet.cells_height + bottom
    figure = MatplotlibFigure(figsize=(sheet.width / 72, height / 72), facecolor="white")
    _write_title(figure, title, height)
    axes = figure.add_axes(
        (
            sheet.left / sheet.width,
            bottom / height,
            sheet.cell_width * len(sheet.nodes) / sheet.width,
            sheet.cells_height / height,
        )
    )
    scale = _scale(best, shown)
    _draw_cells(axes, table, sheet, metric, shown, scale, numbers)
    _label_axes(axes, table, sheet)
    if scale is not None:
        _colour_bar(figure, scale, sheet, (MARGIN_PT + len(foot) * SMALL * LINE + 17) / height, height)
    _write_foot(figure, foot, height)
    return figure


def _title(rows: pd.DataFrame, metric: Metric, room: float) -> list[tuple[str, float, bool]]:
    """Lines of the title: text, size, bold."""
    name = "Best configuration per model and node count"
    if caption.is_simulated(rows):
        name += " (simulated)"
    held = caption.held_fixed(rows, metric)
    under = _phrases(held, room, SMALL + 0.75)
    return [(shortened(name, room, 10.5), 10.5, True), *((line, SMALL + 0.75, False) for line in under)]


def _phrases(phrases: list[str], room: float, size: float) -> list[str]:
    """Phrases joined by dots, broken between phrases only."""
    lines_: list[str] = []
    for phrase in phrases:
        short = shortened(phrase, room, size)
        joined = f"{lines_[-1]} · {short}" if lines_ else short
        if lines_ and width_pt(joined, size) <= room:
            lines_[-1] = joined
        else:
            lines_.append(short)
    return lines_


def _sheet(
    table: pd.DataFrame,
    metric: Metric,
    shown: Metric,
    annotate: str,
    width: float,
    numbers: dict[tuple[str, int], int],
) -> _Sheet:
    """Find the widths, the font size and how much the cells can say."""
    models = list(dict.fromkeys(table["model"]))
    nodes = sorted(int(n) for n in table["nodes"].unique())
    longest = max(width_pt(model, LABEL) for model in models)
    left = MARGIN_PT + min(longest, width * 0.22) + 8
    cell_width = min((width - left - MARGIN_PT) / len(nodes), width * 0.3)
    found = None
    for level in LEVELS if annotate == "auto" else (annotate,):
        found = _fit(table, metric, shown, level, cell_width - 4.0, len(models), numbers)
        if found is not None:
            break
    if found is None:
        raise SweepError(
            Mistake(
                f"{len(nodes)} node counts do not fit legibly in {width / 72:g} inches",
                path="--annotate",
                remedy="use `--annotate auto`, a greater --width, or --filter to choose node counts",
            )
        )
    height = max(found.height_pt, LABEL * LINE + 2)
    if level in ("full", "brief"):
        height = max(height, 3 * LABEL * LINE)
    return _Sheet(models, nodes, width, left, cell_width, height, found.size, level)


def _fit(
    table: pd.DataFrame,
    metric: Metric,
    shown: Metric,
    level: str,
    room: float,
    rows: int,
    numbers: dict[tuple[str, int], int],
) -> Fit | None:
    """The type for a level of detail: on one page if it can be, else taller."""
    texts = [_text(cell, metric, shown, level, numbers) for cell in table.to_dict("records")]

    def wrapped(size: float) -> list[list[str]]:
        return [lines(text, room, size) for text in texts]

    limits = (PAGE_HEIGHT_PT, LONGEST_PT) if level in ("full", "brief") else (PAGE_HEIGHT_PT, float("inf"))
    for limit in limits:
        found = fit(wrapped, room, largest=LARGEST, smallest=SMALLEST, tallest_pt=limit / rows)
        if found is not None:
            return found
    return None


def _text(
    cell: dict[str, Any], metric: Metric, shown: Metric, level: str, numbers: dict[tuple[str, int], int]
) -> list[Any]:
    """Groups of words of any cell, measured or blank."""
    if cell["status"] == "best":
        return groups(cell, metric, shown, level)
    if level == "none":
        return []
    note = numbers.get((str(cell["model"]), int(cell["nodes"])))
    label = str(cell["label"]).split()
    return [[*label, f"[{note}]"] if note else label]


@dataclass(frozen=True)
class _Scale:
    """From a cell's value to its colour."""

    low: float
    high: float
    factor: float
    label: str

    def colour(self, value: float) -> tuple[float, float, float, float]:
        from matplotlib import colormaps

        span = self.high - self.low
        place = (value - self.low) / span if span > 0 else 1.0
        red, green, blue, alpha = colormaps["viridis"](min(1.0, max(0.0, place)))
        return red, green, blue, alpha


def _scale(best: pd.DataFrame, shown: Metric) -> _Scale | None:
    if best.empty:
        return None
    values = best["relative"].to_numpy(float)
    low, high = float(values.min()), float(values.max())
    if shown.absolute:
        return _Scale(low, high, shown.factor, shown.label)
    better = "highest" if shown.higher_is_better else "lowest"
    return _Scale(low, 1.0, 100, f"{shown.label}, as % of the model's best ({better}) over node counts")


def _draw_cells(
    axes: Axes,
    table: pd.DataFrame,
    sheet: _Sheet,
    metric: Metric,
    shown: Metric,
    scale: _Scale | None,
    numbers: dict[tuple[str, int], int],
) -> None:
    from matplotlib.patches import Rectangle

    row_of = {model: at for at, model in enumerate(sheet.models)}
    column_of = {nodes: at for at, nodes in enumerate(sheet.nodes)}
    for cell in table.to_dict("records"):
        x, y = column_of[int(cell["nodes"])], row_of[cell["model"]]
        measured = cell["status"] == "best" and scale is not None
        face: Any = scale.colour(float(cell["relative"])) if measured and scale is not None else EMPTY
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=face, edgecolor="white", linewidth=0.8))
        ink = _ink(face) if measured else FAINT
        text = lines(_text(cell, metric, shown, sheet.level, numbers), sheet.room, sheet.type_size)
        _write_cell(axes, (x, y), text, sheet, ink, headline=measured)
    axes.set_xlim(0, len(sheet.nodes))
    axes.set_ylim(len(sheet.models), 0)


def _write_cell(
    axes: Axes, corner: tuple[int, int], text: list[str], sheet: _Sheet, ink: str, *, headline: bool
) -> None:
    """Lines centred in a cell, the first one bold where it is a value."""
    step = sheet.type_size * LINE / sheet.cell_height
    first = corner[1] + 0.5 - step * (len(text) - 1) / 2
    for at, line in enumerate(text):
        axes.text(
            corner[0] + 0.5,
            first + at * step,
            line,
            ha="center",
            va="center_baseline",
            fontsize=sheet.type_size,
            fontweight="bold" if headline and at == 0 else "normal",
            color=ink,
            parse_math=False,
        )


def _ink(face: tuple[float, float, float, float]) -> str:
    """Black or white, whichever contrasts more (WCAG 2 relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in face[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _label_axes(axes: Axes, table: pd.DataFrame, sheet: _Sheet) -> None:
    axes.set_xticks([at + 0.5 for at in range(len(sheet.nodes))], [str(n) for n in sheet.nodes], fontsize=LABEL)
    room = sheet.left - MARGIN_PT - 8
    labels = [_model_label(model, room, sheet.cell_height) for model in sheet.models]
    axes.set_yticks([at + 0.5 for at in range(len(sheet.models))], labels, fontsize=LABEL)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    per_node = [int(n) for n in table.get("gpus_per_node", pd.Series(dtype=float)).dropna().unique()]
    gpus = f" (of {per_node[0]} GPU{'s' * (per_node[0] != 1)} each)" if len(per_node) == 1 else ""
    axes.set_xlabel(f"nodes{gpus}", fontsize=LABEL, labelpad=2, color=INK)
    axes.tick_params(length=0, pad=3, colors=INK)
    for side in axes.spines.values():
        side.set_visible(False)


def _model_label(model: str, room: float, height: float) -> str:
    """The name, broken after hyphens and slashes where it is too wide, cut where that does not help."""
    if width_pt(model, LABEL) <= room:
        return model
    parts = model.replace("-", "- ").replace("/", "/ ").replace("_", "_ ").split()
    most = max(1, int(height / (LABEL * LINE)))
    joined: list[str] = []
    for line in wrap(parts, room, LABEL):
        joined.append(line.replace("- ", "-").replace("/ ", "/").replace("_ ", "_"))
    if len(joined) > most:
        joined = [*joined[: most - 1], "".join(joined[most - 1 :])]
    return "\n".join(shortened(line, room, LABEL) for line in joined)


def _colour_bar(figure: Figure, scale: _Scale, sheet: _Sheet, at: float, height: float) -> None:
    """A thin bar under the cells, its label beside it."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    span = scale.high - scale.low
    low, high = (scale.low, scale.high) if span > 0 else (scale.low - abs(scale.low) * 0.01 - 1e-12, scale.high)
    bar = figure.add_axes((sheet.left / sheet.width, at, 150 / sheet.width, 6 / height))
    mapped = ScalarMappable(Normalize(low * scale.factor, high * scale.factor), "viridis")
    ticks = [scale.high * scale.factor] if span <= 0 else [x * scale.factor for x in _thirds(low, high)]
    drawn = figure.colorbar(mapped, cax=bar, orientation="horizontal", ticks=ticks)
    drawn.ax.set_xticklabels([number(tick) for tick in ticks])
    drawn.outline.set_visible(False)
    drawn.ax.tick_params(labelsize=SMALL, length=2, pad=1, colors=INK)
    figure.text(
        (sheet.left + 158) / sheet.width,
        at + 3 / height,
        shortened(scale.label, sheet.width - sheet.left - 158 - MARGIN_PT, SMALL + 0.5),
        fontsize=SMALL + 0.5,
        color=INK,
        va="center",
    )


def _thirds(low: float, high: float) -> list[float]:
    return [low + (high - low) * part / 3 for part in range(4)]


def _write_title(figure: Figure, title: list[tuple[str, float, bool]], height: float) -> None:
    y = height - MARGIN_PT
    for text, size, bold in title:
        y -= size * LINE + 1
        weight = "bold" if bold else "normal"
        colour = INK if bold else FAINT
        place = (MARGIN_PT / 72 / figure.get_figwidth(), (y + 2) / height)
        figure.text(*place, text, fontsize=size, fontweight=weight, color=colour, va="baseline", parse_math=False)


def _write_foot(figure: Figure, foot: list[str], height: float) -> None:
    x = MARGIN_PT / 72 / figure.get_figwidth()
    for at, line in enumerate(reversed(foot)):
        y = (MARGIN_PT + at * SMALL * LINE) / height
        figure.text(x, y, line, fontsize=SMALL, color=FAINT, va="baseline", parse_math=False)
