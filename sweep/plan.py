"""From a grid and a site to the plan: every run, every rejected candidate with every reason. Pure.

The same grid and site give the same plan with the same run_ids, in any order of their keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sweep.contract import Run, Workload
from sweep.errors import SweepError
from sweep.grid import Grid
from sweep.planning.builder import Builder
from sweep.planning.declared import mistakes_of
from sweep.planning.expand import cells, chunks
from sweep.planning.near_batch import refuse_impossible_batch
from sweep.planning.rules import rules_for
from sweep.site import Site
from sweep.workloads import find_workload


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan: what a scheduler of runs needs, the rest on demand."""

    run_id: str
    model: str
    nodes: int
    predicted_s: float | None
    """rough seconds of one attempt; None where the hardware's speed is not known"""
    run_json: str
    """canonical JSON of the run"""

    def run(self) -> Run:
        """The run in full."""
        return Run.from_json(self.run_json)


@dataclass(frozen=True)
class Plan:
    """All runs and all rejected candidates of one grid on one site."""

    name: str
    table: Any
    """pyarrow.Table of ``sweep.planning.table.SCHEMA``: runs first, in the order in which they are to be measured"""

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """The runs, in the order in which they are to be measured."""
        return runs_of(self.table)

    @property
    def run_count(self) -> int:
        """How many runs there are."""
        return self.table.num_rows - self.table.column("run_id").null_count  # type: ignore[no-any-return]


def build(grid: Grid, site: Site, workload: Workload | None = None) -> Plan:
    """The plan. ``workload``: the declaration, by default the one that the grid names.

    Raises SweepError where the grid asks for what the workload or the site cannot give, or where no layout at all
    has the global batch.
    """
    try:
        workload = workload or find_workload(grid.workload)
    except SweepError as error:
        raise SweepError([grid.mistake(m.fact, ("workload",), m.remedy) for m in error.mistakes]) from error
    if mistakes := mistakes_of(grid, site, workload):
        raise SweepError(sorted(mistakes, key=lambda mistake: mistake.line or 0))
    squares = list(cells(grid, site, workload))
    refuse_impossible_batch(grid, squares)
    builder = Builder(grid, site, rules_for(grid, site, workload))
    for cell in squares:
        for columns in chunks(cell):
            builder.add(cell, columns)
    return Plan(grid.name, builder.table())


def to_table(plan: Plan) -> Any:
    """The plan as a pyarrow.Table: status run or rejected, a column per layout field, reasons as lists of text."""
    return plan.table


def runs_of(table: Any) -> tuple[PlannedRun, ...]:
    """The runs of a plan's table (pyarrow.Table), in their order. Needs nothing but pyarrow."""
    names = ["run_id", "model", "nodes", "predicted_s", "run_json"]
    runs = table.filter(pc.is_valid(table.column("run_id"))).select([*names, "position"])
    if runs.num_rows and not pc.all(pc.equal(runs.column("position"), pa.array(range(runs.num_rows)))).as_py():
        runs = runs.sort_by("position")
    columns = [runs.column(name).to_pylist() for name in names]
    return tuple(PlannedRun(*values) for values in zip(*columns, strict=True))
