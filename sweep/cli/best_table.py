"""The best configuration of each cell as a table for a terminal, whole on a wide one and short on a narrow one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sweep.library.sources import METRIC
from sweep.library.winners import SIMULATED, Row, layout_text

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROW = 110
"""characters of a line below which the sentences stand under the table, and the table has a word for each"""
WORDS = {
    "clear": ("clear", "beyond the spread between runs"),
    "leads": ("leads", "ahead, but not shown beyond the spread between runs"),
    "unknown": ("?", "the spread of its iterations is not known"),
    "alone": ("alone", "no other configuration of the same work was measured in the cell"),
}


def table(rows: Sequence[Row], metric: str = METRIC, width: int = NARROW) -> RenderableType:
    """The winners, with the marks that they need, for lines of ``width`` characters."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from analysis.heatmap.cell_text import percent_text
    from analysis.metrics import memory_text, metric_named, number

    ranked, wide = metric_named(metric), width >= NARROW
    title = "Best configuration per model and node count" + (
        f" ({SIMULATED})" if any(row["simulated"] for row in rows) else ""
    )
    label = ranked.label if wide else ranked.label.replace("tokens/s", "tok/s")
    headings = ("model", "nodes", "layout", label, "MFU", "memory", "margin", "how sure" if wide else "sure")
    found = Table(*headings, title=title)
    if not wide:
        from rich.box import SIMPLE_HEAD

        found.box, found.padding, found.show_edge = SIMPLE_HEAD, (0, 1, 0, 0), False
    for column in found.columns[3:7]:
        column.justify = "right"
    for column in found.columns[3:]:
        column.no_wrap = not wide
    found.columns[2].max_width = 40 if wide else 22
    for row in rows:
        value = number(row["value"] * ranked.factor)
        sure = row["confidence"] if wide else _word(row)
        memory = "–" if row["peak_memory_bytes"] is None else memory_text(float(row["peak_memory_bytes"]))
        cells = (layout_text(row), value, _mfu(row), memory, percent_text(row["margin"]), sure)
        found.add_row(Text(row["model"]), str(row["nodes"]), *(Text(cell) for cell in cells))
    legend = [] if wide else _legend(rows)
    return Group(found, *(Text(text) for text in legend), *(Text(text, style="yellow") for text in remarks(rows)))


def remarks(rows: Sequence[Row]) -> list[str]:
    """What must be said with the numbers: why MFU is blank or whose it is, and the notes, equal ones together."""
    from analysis.tables import places_text

    found = []
    if any(row["mfu"] is None and row["gpu"] == "cpu" for row in rows):
        found.append("MFU is blank on a CPU: it is relative to a GPU's peak FLOP/s.")
    if any(_is_reported(row) for row in rows):
        found.append("*: the MFU that the source states; its tokens/s do not give one here")
    noted = dict.fromkeys(note for row in rows for note in row["notes"] or ())
    for note in noted:
        cells = [(row["model"], row["nodes"]) for row in rows if note in (row["notes"] or ())]
        found.append(f"{places_text(cells, most=len(cells))}: {note}")
    return found


def _word(row: Row) -> str:
    """How sure it is in a word: clear, ≈2 (ties with two others), leads, ?, alone."""
    if row["verdict"] == "tie":
        return f"≈{len(row['ties'])}"
    return WORDS[row["verdict"]][0]


def _legend(rows: Sequence[Row]) -> list[str]:
    """What the words in the table mean, of those that it has."""
    verdicts = {row["verdict"] for row in rows}
    found = ["≈n: within noise of n other configurations"] if "tie" in verdicts else []
    return found + [f"{word}: {meaning}" for verdict, (word, meaning) in WORDS.items() if verdict in verdicts]


def _is_reported(row: Mapping[str, object]) -> bool:
    return row["mfu"] is None and row["reported_mfu"] is not None


def _mfu(row: Row) -> str:
    """The MFU, else the one that an imported source reports, marked."""
    from analysis.heatmap.cell_text import percent_text

    return f"{percent_text(row['reported_mfu'])}*" if _is_reported(row) else percent_text(row["mfu"])
