"""One self-contained HTML page of a sweep: the answer first, then how sure it is, and everything behind it.

A module per section; tables come from ``analysis.derive``, pictures from ``analysis.figures`` and ``heatmap``.
"""

from __future__ import annotations

from analysis.report.build import About, build, columns_needed
from analysis.report.figures import Picture

__all__ = ["About", "Picture", "build", "columns_needed"]
