"""Figures as images in the page, each with an alternative text."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analysis.figures import Drawn

PNG_DPI = 200
PALETTE = 128
"""colours of a PNG: a figure has few, and is three times as large with 24 bits for each point"""


def data_uri(figure: Figure) -> str:
    """The figure as a data: URI, the same for the same figure. So embedded, it runs no script and loads nothing."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=PNG_DPI)
    with Image.open(whole) as image:
        image.convert("RGB").quantize(PALETTE, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"


def alternative(drawn: Drawn) -> str:
    """What a figure shows, in words: its caption and the labels of its axes."""
    shown = [a for a in drawn.figure.axes if a.get_xlabel() and a.get_ylabel()]
    labels = "; ".join(dict.fromkeys(f"{a.get_ylabel()} against {a.get_xlabel()}" for a in shown[:4]))
    return f"{drawn.caption} ({labels})" if labels else drawn.caption
