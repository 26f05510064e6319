"""How wide text is, how to wrap it, and the font size at which every cell's text fits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LINE = 1.22
"""Line height, as a multiple of the font size"""

Group = Sequence[str]
"""Words that belong together, such as DP4 TP1 PP2: a line may break between them, never inside one"""


@functools.lru_cache(maxsize=65536)
def width_pt(text: str, size: float, bold: bool = False) -> float:
    """Width of a text in points, in the figure's sans serif font."""
    return _width_at_10(text, bold) * size / 10


@functools.lru_cache(maxsize=65536)
def _width_at_10(text: str, bold: bool) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family="sans-serif", weight="bold" if bold else "normal", size=10)
    return TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]


def wrap(words: Sequence[str], room_pt: float, size: float) -> list[str]:
    """Words into lines of at most ``room_pt``; a word that is wider than that has a line of its own."""
    lines: list[str] = []
    for word in words:
        if lines and width_pt(f"{lines[-1]} {word}", size) <= room_pt:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def balanced(words: Sequence[str], room_pt: float, size: float) -> list[str]:
    """As ``wrap``, but where several lines are needed, as even as possible, without a single word on the last one."""
    lines = wrap(words, room_pt, size)
    if len(lines) < 2 or len(lines) == len(words):
        return lines
    narrowest, width = lines, room_pt
    while len(narrowest) == len(lines) and width > room_pt / 2:
        lines, width = narrowest, width - size / 4
        narrowest = wrap(words, width, size)
    return lines


def paragraph(text: str, room_pt: float, size: float) -> list[str]:
    """A sentence into lines of at most ``room_pt``."""
    return wrap(text.split(), room_pt, size)


def wrap_phrases(phrases: Sequence[str], room: float, size: float) -> list[str]:
    """Phrases joined by dots into lines; a line breaks between phrases only."""
    lines: list[str] = []
    for phrase in (shortened(phrase, room, size) for phrase in phrases):
        longer = f"{lines[-1]} · {phrase}" if lines else phrase
        if lines and width_pt(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(phrase)
    return lines


def shortened(text: str, room_pt: float, size: float) -> str:
    """The text, with its end cut off where it is too wide."""
    if width_pt(text, size) <= room_pt:
        return text
    head = text
    while head and width_pt(head + "…", size) > room_pt:
        head = head[:-1]
    return head + "…"


@dataclass(frozen=True)
class FontFit:
    """The font size and lines of a figure's cells."""

    size: float
    """font size in points"""
    lines: int
    """lines of the fullest cell"""

    @property
    def height_pt(self) -> float:
        """Height that the fullest cell takes, with its margins."""
        return (self.lines * LINE + 0.9) * self.size


def fit(
    texts: Callable[[float], Sequence[Sequence[str]]],
    room_pt: float,
    *,
    largest: float,
    smallest: float,
    tallest_pt: float,
) -> FontFit | None:
    """The largest font size at which every line fits the cell's width and no cell is taller than ``tallest_pt``.

    ``texts``: font size -> the lines of each cell, already wrapped; the first line is bold.
    """
    size = largest if _holds(texts(smallest), room_pt, smallest, tallest_pt) else 0.0
    while size >= smallest - 1e-9:
        cells = texts(size)
        if _holds(cells, room_pt, size, tallest_pt):
            return FontFit(size, _most_lines(cells))
        size -= 0.25
    return None


def _holds(cells: Sequence[Sequence[str]], room_pt: float, size: float, tallest_pt: float) -> bool:
    if FontFit(size, _most_lines(cells)).height_pt > tallest_pt:
        return False
    return all(width_pt(line, size, bold=at == 0) <= room_pt for lines in cells for at, line in enumerate(lines))


def _most_lines(cells: Sequence[Sequence[str]]) -> int:
    return max((len(lines) for lines in cells), default=1)
