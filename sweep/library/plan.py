"""From a grid and a site to a plan, before anything is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweep.inputs.load import load_site
from sweep.planning.build import build

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site
    from sweep.planning.runs import Plan


def plan(grid: Grid, site: Site | None = None) -> Plan:
    """Every candidate of a grid: runs in the order of their measurement, and rejected ones with every reason.

    ``site``: by default the grid's own, otherwise what is detected. Raises SweepError with every mistake.
    """
    return build(grid, site if site is not None else load_site(grid))
