"""The figures of ``analysis.figures`` as images in the page, each with an alternative text."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from analysis.figures import FIGURES, Drawn, Tables, draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST_SVG = 100_000
"""Characters; a figure of many points is smaller, about 70 KB, and faster to display as PNG"""
MOST_MARKS = 20_000
"""Points and shapes in a figure; more than that takes seconds to write as an SVG that would be too large anyway"""
PNG_DPI = 200
PALETTE = 128
"""colours of a PNG"""
IN_A_URI = " /:=;,()!*+@?&$-_.~"
"""what need not be written as % and digits; of the page's HTML, the template escapes the rest"""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One figure, drawn."""

    name: str
    caption: str
    alt: str
    uri: str
    """the image as a data: URI; so embedded, it runs no script and loads nothing"""
    lacking: str = ""
    """why there is no image: the data lack what it would show"""


def pictures_of(tables: Tables) -> list[Picture]:
    """Every figure of the registry: drawn, or the reason why not."""
    return [picture_of(draw(name, tables)) for name in FIGURES]


def picture_of(drawn: Drawn) -> Picture:
    """A figure as SVG, or as PNG where the SVG would be large."""
    if drawn.lacking is not None:
        return Picture(name=drawn.name, caption=drawn.caption, alt="", uri="", lacking=drawn.lacking)
    alt = _alt(drawn.caption, drawn.figure)
    return Picture(name=drawn.name, caption=drawn.caption, alt=alt, uri=data_uri(drawn.figure))


def data_uri(figure: Figure) -> str:
    """The figure as a data: URI, the same for the same figure."""
    svg = compact(_saved(figure, "svg").decode()) if _marks(figure) <= MOST_MARKS else ""
    if 0 < len(svg) <= LARGEST_SVG:
        return f"data:image/svg+xml,{quote(svg, safe=IN_A_URI)}"
    return f"data:image/png;base64,{base64.b64encode(png_in_few_colours(figure)).decode()}"


def compact(svg: str) -> str:
    """An SVG of matplotlib with coordinates to 1/100 of a point, and without comments, metadata and line breaks."""
    shown = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"-?\d+\.\d{3,}", _short, shown)).replace("> <", "><")


def _short(number: re.Match[str]) -> str:
    """Below 1 it may be a scale or an opacity: four digits."""
    value = float(number[0])
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) >= 1 else f"{value:.4g}"


def png_in_few_colours(figure: Figure) -> bytes:
    """A PNG with a palette: a figure has few colours, and is three times as large with 24 bits for each point."""
    from PIL import Image

    sink = io.BytesIO()
    with Image.open(io.BytesIO(_saved(figure, "png"))) as image:
        image.convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE).save(sink, "PNG", optimize=True)
    return sink.getvalue()


def _marks(figure: Figure) -> int:
    """How many points, shapes and texts a figure draws, about."""
    count = 0
    for axes in figure.axes:
        count += len(axes.patches) + len(axes.texts)
        for line in axes.lines:
            count += np.size(line.get_xdata())
        for shapes in axes.collections:
            count += max(np.shape(shapes.get_offsets())[0], len(shapes.get_paths()))
    return count


def _saved(figure: Figure, kind: str) -> bytes:
    import matplotlib as mpl

    sink = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "sweep"}):
        figure.savefig(sink, format=kind, dpi=PNG_DPI, metadata={"Date": None} if kind == "svg" else {})
    return sink.getvalue()


def _alt(caption: str, figure: Figure) -> str:
    """The caption and the labels of the axes."""
    axes = [f"{a.get_ylabel()} against {a.get_xlabel()}" for a in figure.axes if a.get_xlabel() and a.get_ylabel()]
    labels = "; ".join(dict.fromkeys(axes[:4]))
    return f"{caption} ({labels})" if labels else caption
