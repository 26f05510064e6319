"""The timeline of a rank's memory as an image: stacked bars by kind, the GPU's memory as a line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sweep.physics.hardware import GIB

_COLOURS = {
    "weights": "#4477aa",
    "master_weights": "#66ccee",
    "gradients": "#228833",
    "gradient_buckets": "#88cc77",
    "optimizer_states": "#ccbb44",
    "activations": "#ee6677",
    "logits": "#aa3377",
    "workspace": "#dd99bb",
    "gathered": "#997755",
    "pipeline_buffers": "#775544",
    "fixed": "#999999",
    "fragmentation": "#cccccc",
}
"""kind -> colour (Paul Tol's bright scheme and shades of it)"""


def draw(
    timeline: Mapping[str, Mapping[str, float]], path: Path, *, title: str, limit_bytes: float | None = None
) -> None:
    """Write the image; the format follows the file's suffix. ``timeline``: phase -> kind -> bytes, with "total"."""
    from analysis.figures import style
    from analysis.heatmap.draw import save_figure

    figure = style.sheet(title, height_in=3.6)
    (axes,) = figure.axes
    phases = list(timeline)
    bottom = [0.0] * len(phases)
    for kind, colour in _COLOURS.items():
        heights = [float(timeline[phase].get(kind, 0.0)) / GIB for phase in phases]
        if max(heights) > 0:
            axes.bar(phases, heights, 0.62, bottom=bottom, color=colour, label=kind.replace("_", " "))
            bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    for place, total in enumerate(bottom):
        axes.annotate(f"{total:.1f}", (place, total), (0, 3), textcoords="offset points", ha="center", fontsize=7)
    limit = None if limit_bytes is None else limit_bytes / GIB
    if limit is not None:
        axes.axhline(limit, color="black", linestyle="--", linewidth=1)
        axes.annotate(f"the GPU's {limit:.1f} GiB", (-0.4, limit), (0, 3), textcoords="offset points", fontsize=7)
    axes.set_ylim(0, 1.12 * max(*bottom, limit or 0.0))
    axes.set_ylabel("GiB on one GPU")
    axes.set_xticks(range(len(phases)), [phase.replace(" ", "\n") for phase in phases])
    handles, labels = axes.get_legend_handles_labels()
    style.legend(axes, handles=handles[::-1], labels=labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    save_figure(figure, path)
