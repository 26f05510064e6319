"""The dimensions of a heatmap in points, computed from its texts before anything is drawn."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.heatmap.cell_text import LEVELS, lines
from analysis.text_fit import LINE, MARGIN, Group, shortened, width_pt, wrap

PAGE_HEIGHT = 8.0 * 72
"""Height that the cells may take on one page"""
LONGEST = 26.0 * 72
"""Height that they may take where one page is too short; beyond it, cells show less"""
SIZES = tuple(8.5 - 0.25 * step for step in range(16))
"""Font sizes in cells, the largest first"""
LABEL = 7.5
"""Font size of models and node counts"""
PADDING = 2.0
"""Padding between a cell's edge and its text"""

CellTexts = Callable[[str], Sequence[Sequence[Group]]]
"""Level of detail -> the text of each cell"""


@dataclass(frozen=True)
class Page:
    """The positions, in points."""

    models: tuple[str, ...]
    nodes: tuple[int, ...]
    left: float
    """from the left edge to the first cell"""
    cell_width: float
    cell_height: float
    type_size: float
    level: str
    """level of detail of the cells"""

    @property
    def cells_height(self) -> float:
        """Height of all cells."""
        return self.cell_height * len(self.models)

    @property
    def tall(self) -> bool:
        """Too tall to see the node counts below while looking at the first models."""
        return self.cells_height > PAGE_HEIGHT

    @property
    def node_type(self) -> tuple[float, int]:
        """Font size of the node counts, and the step between written ones, so that they do not overlap."""
        widest = max(width_pt(str(n), LABEL) for n in self.nodes)
        size = max(SIZES[-1], min(LABEL, LABEL * (self.cell_width - 3) / widest))
        return size, math.ceil((widest * size / LABEL + 3) / self.cell_width)

    def label(self, model: str) -> str:
        """A model's name, broken after hyphens and slashes where it is too wide, cut where that does not help."""
        room = self.left - MARGIN - 8
        if width_pt(model, LABEL) <= room:
            return model
        parts = re.sub(r"([-/_])", r"\1 ", model).split()
        broken = [re.sub(r"([-/_]) ", r"\1", line) for line in wrap(parts, room, LABEL)]
        most = max(1, int(self.cell_height / (LABEL * LINE)))
        if most == 1 and len(self.models) > 1:  # without the words that all begin with
            same = os.path.commonprefix(self.models)  # noqa: RUF071 - no paths
            begin = max(same.rfind(end) for end in "-/_") + 1
            broken = ["…" * (begin > 0) + model[begin:]]
        elif len(broken) > most:
            broken = [*broken[: most - 1], "".join(broken[most - 1 :])]
        return "\n".join(shortened(line, room, LABEL) for line in broken)


def plan_page(models: Sequence[str], nodes: Sequence[int], texts: CellTexts, width: float) -> Page:
    """The widths, the font size, and the level of detail that fits that width."""
    longest = max(width_pt(model, LABEL) for model in models)
    left = MARGIN + min(longest, width * 0.22) + 8
    cell_width = min((width - left - MARGIN) / len(nodes), width * 0.3)
    for level in LEVELS:
        found = _fit(texts(level), level, cell_width - 2 * PADDING, len(models))
        if found is not None:
            height = max(found[1], LABEL * LINE + 2, 3 * LABEL * LINE if level in ("full", "brief") else 0)
            return Page(tuple(models), tuple(nodes), left, cell_width, height, found[0], level)
    raise AssertionError("cells without text fit any width")


def _fit(texts: Sequence[Sequence[Group]], level: str, room: float, rows: int) -> tuple[float, float] | None:
    """(font size, height of the fullest cell) for a level of detail: on one page if it can be, else no taller than
    needed.
    """
    distinct = list({tuple(map(tuple, text)): text for text in texts}.values())
    growing = [PAGE_HEIGHT * 1.25**step for step in range(5)]
    for limit in (*growing, LONGEST if level in ("full", "brief") else float("inf")):
        if _height(distinct, room, SIZES[-1], limit / rows) is not None:
            heights = ((size, _height(distinct, room, size, limit / rows)) for size in SIZES)
            return next((size, height) for size, height in heights if height is not None)
    return None


def _height(texts: Sequence[Sequence[Group]], room: float, size: float, tallest: float) -> float | None:
    """Of the cell with the most lines, with its margins; None where it is too tall, or a line too wide. First lines are
    bold.
    """
    cells = [lines(text, room, size) for text in texts]
    height = (max((len(cell) for cell in cells), default=1) * LINE + 0.9) * size
    if height > tallest:
        return None
    holds = all(width_pt(line, size, bold=at == 0) <= room for cell in cells for at, line in enumerate(cell))
    return height if holds else None
