"""The whole way from a grid to the plan's table."""

from __future__ import annotations

from typing import Any

from sweep.contract import Workload
from sweep.errors import SweepError
from sweep.inputs.check import problems_of
from sweep.inputs.grid import Grid
from sweep.inputs.site import Site
from sweep.planning.builder import Builder
from sweep.planning.expand import cells, chunks
from sweep.planning.near_batch import refuse_impossible_batch
from sweep.planning.rules import rules_for
from sweep.plugins import find_workload


def build_table(grid: Grid, site: Site, workload: Workload | None) -> Any:
    """One row per candidate (``sweep.planning.table.SCHEMA``). Raises SweepError as ``sweep.plan.build`` says."""
    workload = workload or _declared(grid)
    if problems := problems_of(grid, site, workload):
        raise SweepError(grid.located(problems))
    squares = list(cells(grid, site, workload))
    refuse_impossible_batch(grid, squares)
    builder = Builder(grid, site, workload.name, rules_for(grid, site, workload))
    for cell in squares:
        for columns in chunks(cell):
            builder.add(cell, columns)
    return builder.table()


def _declared(grid: Grid) -> Workload:
    try:
        return find_workload(grid.workload)
    except SweepError as error:
        raise SweepError([grid.mistake(m.fact, ("workload",), m.remedy) for m in error.mistakes]) from error
