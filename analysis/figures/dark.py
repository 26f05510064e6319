"""A drawn figure in dark colours, for a page in a dark theme. Sizes, shapes and data colours are unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.figures import style
from analysis.heatmap.colours import luminance

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text

PAGE, INK, FAINT, LINE, SHADE = "#10151b", "#e6edf3", "#a3adb8", "#343c46", "#1f2731"
"""those of the report's dark theme (templates/report.css.j2)"""

DARK = {
    "#ffffff": PAGE,
    "#000000": INK,
    style.INK: INK,
    style.FAINT: FAINT,
    style.GRID: LINE,
    **dict.fromkeys(("#f4f4f4", "#e6e6e6"), SHADE),  # bands behind data
    "#b3d4ea": "#2b4f68",  # boxes around medians
}
"""colour of a figure -> its colour in a dark one"""

CONTRAST = 3.0
"""of graphical objects with what is behind them, at least: WCAG 2.1, 1.4.11"""


def darken(figure: Figure) -> None:
    """Change the colours of all that the figure shows: those of ``DARK``, and of lines and points that are too dark."""
    from matplotlib.collections import Collection, PolyCollection, QuadMesh
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Text

    inks = {text: text.get_color() for axes in figure.axes for text in axes.texts}
    parts = {Text: ("color",), Line2D: ("color", "markerfacecolor", "markeredgecolor")}
    parts |= {Patch: ("edgecolor", "facecolor"), Collection: ("edgecolor", "facecolor")}
    for artist in figure.findobj():
        area = isinstance(artist, (Patch, QuadMesh)) or type(artist) is PolyCollection  # its subclass: bands of a curve
        for kind, names in parts.items():
            if isinstance(artist, kind):
                _recolour(artist, names, thin=not area)
    for text, ink in inks.items():
        face = _face_behind(text)
        if face is not None and _contrast(ink, face) > _contrast(text.get_color(), face):
            text.set_color(ink)


def _face_behind(text: Text) -> Any:
    """The colour of the cell of a table or heatmap that a text of a chart is on; None if it is on none."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Rectangle

    axes = text.axes
    if axes is None or text.get_transform() != axes.transData:
        return None
    cells = [(patch.get_bbox(), patch.get_facecolor()) for patch in axes.patches if isinstance(patch, Rectangle)]
    for several in axes.collections:
        if type(several) is PolyCollection:
            cells += zip((path.get_extents() for path in several.get_paths()), several.get_facecolor(), strict=True)
    behind = [colour for bounds, colour in cells if bounds.contains(*text.get_position())]
    return behind[-1] if behind else None


def _contrast(one: Any, other: Any) -> float:
    """WCAG's contrast of two colours: 1 to 21."""
    from matplotlib.colors import to_rgb

    low, high = sorted(luminance(to_rgb(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def _recolour(artist: Any, names: tuple[str, ...], *, thin: bool) -> None:
    for name in names:
        old = getattr(artist, f"get_{name}")()
        if isinstance(old, str) and old in ("none", "auto"):
            continue
        getattr(artist, f"set_{name}")(_dark(old, lighter=thin))


def _dark(colour: Any, *, lighter: bool) -> Any:
    """The colour, or an array of them, for a dark page; opacity is kept. ``lighter``: until it has its contrast."""
    from matplotlib.colors import to_hex, to_rgba_array

    found = to_rgba_array(colour)
    for row in found:
        new = DARK.get(to_hex(row))
        if new is not None:
            row[:3] = to_rgba_array(new)[0, :3]
        elif lighter:
            row[:3] = _legible(row[:3])
    return found if np.ndim(colour) > 1 else found[0] if len(found) else colour


def _legible(colour: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mixed with as little white as its contrast with the page needs."""
    from matplotlib.colors import to_rgb

    page = luminance(to_rgb(PAGE))
    mixes = (colour + share * (1 - colour) for share in np.linspace(0, 1, 41))
    return next(mix for mix in mixes if luminance(tuple(mix)) + 0.05 >= CONTRAST * (page + 0.05))
