"""The best configuration of each cell as a table for a terminal, whole on a wide one and short on a narrow one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweep.library.sources import METRIC
from sweep.library.winners import SIMULATED, Row

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROW = 110
"""characters of a line below which the sentences stand under the table, and the table has a word for each"""
SURE = ("how sure", "sure")
"""headings of the column of sentences, and of words"""
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

    from sweep.library.table_formats import best_table

    wide = width >= NARROW
    title = "Best configuration per model and node count" + (
        f" ({SIMULATED})" if any(row["simulated"] for row in rows) else ""
    )
    heads, lines, under = best_table(rows, metric, None if wide else _word)
    found = Table(*(head if wide else head.replace("tokens/s", "tok/s") for head in heads), title=title)
    if not wide:
        from rich.box import SIMPLE_HEAD

        found.box, found.padding, found.show_edge = SIMPLE_HEAD, (0, 1, 0, 0), False
    for head, column in zip(heads[3:], found.columns[3:], strict=True):
        column.justify = "left" if head in SURE else "right"
        column.no_wrap = not wide
    found.columns[2].max_width = 40 if wide else 22
    for line in lines:
        found.add_row(*map(Text, line))
    legend = [] if wide else _legend(rows)
    return Group(found, *(Text(text) for text in legend), *(Text(text, style="yellow") for text in under))


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
