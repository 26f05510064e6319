"""One self-contained HTML page of a sweep: the result first, then its uncertainty, and the data behind it.

A module per section; tables come from ``analysis.derive``, plots from ``analysis.figures`` and ``heatmap``.
"""

from __future__ import annotations

from analysis.report.build import About, build, columns_needed

__all__ = ["About", "build", "columns_needed"]


def __dir__() -> list[str]:
    """The public names alone: for completion by tab."""
    return sorted(__all__)
