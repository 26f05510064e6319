"""How wide text is, how to wrap it, and the texts around a figure."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE, UNDER, SMALL = 10.5, 6.75, 6.5
"""Font sizes of a figure's title, of the line under it, and of its notes, in points"""
MARGIN = 8.0
HINTED = 0.95
"""At low resolution small text is up to this much wider than in print"""
INK, FAINT = "#1a1a1a", "#555555"

WIDEST = 1000
"""characters of a text that are measured: no line of a figure has room for more"""
LINE = 1.22
"""Line height, as a multiple of the font size"""

Group = Sequence[str]
"""Words that belong together, such as DP4 TP1 PP2: a line may break between them, never inside one"""


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


def shortened(text: str, room_pt: float, size: float) -> str:
    """The text, without its middle where it is too wide: names of one family differ at their ends."""
    if len(text) <= WIDEST and width_pt(text, size) <= room_pt:
        return text
    lengths = range(1, min(len(text), WIDEST) // 2 + 1)
    fits = bisect.bisect_right(lengths, room_pt, key=lambda n: width_pt(f"{text[:n]}…{text[-n:]}", size))
    return f"{text[:fits]}…{text[len(text) - fits :]}"


class Frame:
    """The texts around a figure of a width: its title, what was held fixed, and the notes at its foot. In points."""

    def __init__(self, width: float, title: str, held: Sequence[str], notes: Sequence[str]) -> None:
        room = (width - 2 * MARGIN) * HINTED
        self.width, self.title = width, title
        self.foot = [line for note in notes for line in wrap(note.split(), room, SMALL)]
        self.head: list[str] = []  # broken between phrases only
        for phrase in (shortened(phrase, room, UNDER) for phrase in held):
            longer = f"{self.head[-1]} · {phrase}" if self.head else phrase
            if self.head and width_pt(longer, UNDER) <= room:
                self.head[-1] = longer
            else:
                self.head.append(phrase)

    @property
    def above(self) -> float:
        """Height of the title and what is under it."""
        return MARGIN + TITLE * LINE + len(self.head) * UNDER * LINE + 5

    @property
    def below(self) -> float:
        """Height of the notes."""
        return MARGIN / 2 + len(self.foot) * SMALL * LINE

    def write(self, figure: Figure) -> None:
        """Set the texts; the figure has its size."""
        height, left, size = 72 * figure.get_figheight(), MARGIN / self.width, TITLE
        while width_pt(self.title, size, bold=True) > self.width - 2 * MARGIN and size > SMALL:
            size -= 0.25
        y = height - MARGIN - TITLE
        common: dict[str, Any] = {"va": "baseline", "parse_math": False}
        figure.text(left, y / height, self.title, fontsize=size, fontweight="bold", color=INK, **common)
        for line in self.head:
            y -= UNDER * LINE
            figure.text(left, (y - 1) / height, line, fontsize=UNDER, color=FAINT, **common)
        for at, line in enumerate(reversed(self.foot)):
            place = (MARGIN / 2 + 2 + at * SMALL * LINE) / height
            figure.text(left, place, line, fontsize=SMALL, color=FAINT, **common)
