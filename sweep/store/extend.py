"""Extend an existing sweep by a further grid: its new runs are a further plan, written once, the plan last.

Earlier runs keep their run_ids and records. A running launcher reads the plan, pilots that start later too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow

from sweep.contract import Run
from sweep.errors import Mistake, SweepError
from sweep.files import parquet_of, read_table
from sweep.inputs.grid import Grid
from sweep.inputs.site import Site
from sweep.planning.runs import Plan
from sweep.planning.table import PARQUET, SCHEMA, further
from sweep.state.events import Extended
from sweep.store.create import mistakes_of_site
from sweep.store.directory import SweepDir, write_once
from sweep.store.journal import write_request
from sweep.store.sweep import Sweep

SAME = ("workload", "sequence_length", "global_batch", "tokens_per_gpu", "seed")
"""keys of a grid that define what is compared in a cell: all runs of a sweep share them"""
SETTINGS = ("strategy", "miss", "stop_slow", "budget", "timeouts", "max_run_time", "isolate", "remeasure", "preflight")
"""keys of a grid that control how the sweep continues: the last grid's are in effect"""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """What a grid adds to a sweep."""

    table: pyarrow.Table
    """pyarrow.Table of the rows that no plan of the sweep has: runs, then rejected candidates"""
    runs: int
    rejected: int
    planned_before: int
    """runs of the grid that the sweep has already"""
    settings: Mapping[str, tuple[Any, Any]]
    """key -> previous and new value as JSON values, where the two differ"""

    @property
    def empty(self) -> bool:
        """Nothing would change."""
        return not self.runs and not self.settings


def mistakes_of(sweep: Sweep, grid: Grid, site: Site | None) -> list[Mistake]:
    """Why the grid cannot extend the sweep: it defines a cell or a model differently, or has another site."""
    remedy = "start another sweep with `sweep launch`; `sweep heatmap A B` plots both as one"
    asked = ((key, getattr(grid, key), getattr(sweep.grid, key)) for key in SAME)
    mistakes = [
        grid.mistake(f"{key} is {new}, and that of the sweep's other runs is {old}", (key,), remedy)
        for key, new, old in asked
        if new != old
    ]
    mistakes += [
        grid.mistake(
            f"{name} has another shape than the {name} of the sweep", ("models",), f"name it otherwise; or {remedy}"
        )
        for name, shape in grid.models.items()
        if sweep.grid.models.get(name, shape) != shape
    ]
    return mistakes + mistakes_of_site(sweep, site)


def extension(sweep: Sweep, grid: Grid, plan: Plan) -> Extension:
    """What the plan of a grid adds. Raises SweepError where a plan of the sweep cannot be read."""
    table = further(plan.table, _tables(sweep))
    runs = table.num_rows - int(table.column("run_id").null_count)
    before, now = (one.model_dump(mode="json", include=set(SETTINGS), exclude_none=True) for one in (sweep.grid, grid))
    return Extension(
        table=table,
        runs=runs,
        rejected=table.num_rows - runs,
        planned_before=plan.run_count - runs,
        settings={key: (before.get(key), now.get(key)) for key in SETTINGS if before.get(key) != now.get(key)},
    )


def repeats_of(sweep: Sweep, run_ids: Sequence[str]) -> Extension:
    """One further measurement of each of these runs. Raises SweepError where a plan of the sweep cannot be read."""
    import pyarrow.compute as pc  # import takes a tenth of a second

    wanted = pyarrow.array(run_ids)
    tables = [table.filter(pc.is_in(table.column("run_id"), value_set=wanted)) for table in _tables(sweep)]
    rows = {row["run_id"]: row for table in tables for row in table.to_pylist()}
    again = [Run.from_json(rows[run_id]["run_json"]) for run_id in run_ids]
    again = [replace(run, repeat=run.repeat + 1) for run in again]
    new = [
        {
            **rows[run_id],
            "run_id": run.run_id,
            "repeat": run.repeat,
            "run_json": run.canonical_json(),
            "position": place,
        }
        for place, (run_id, run) in enumerate(zip(run_ids, again, strict=True), start=len(sweep.runs))
    ]
    table = pyarrow.Table.from_pylist(new, schema=SCHEMA)
    return Extension(table=table, runs=len(new), rejected=0, planned_before=0, settings={})


def _tables(sweep: Sweep) -> list[pyarrow.Table]:
    try:
        return [read_table(path) for path in sweep.plans]
    except OSError as error:
        fact = f"a plan cannot be read: {str(error).splitlines()[0]}"
        raise SweepError(Mistake(fact, file=str(sweep.directory.path))) from error


def extend(directory: SweepDir, grid: Grid, added: Extension) -> Path:
    """Write the grid, then the plan, each once. Returns the plan's path. Raises OSError where it cannot be written.

    If interrupted between the two, the sweep is unchanged: the same grid's next extension takes that number, another's
    the next one.
    """
    text, plan, number = grid.to_yaml(), parquet_of(added.table, **PARQUET), 2
    while True:
        grid_path, path = directory.extension(number)
        if not path.exists() and _written(grid_path, text):
            try:
                write_once(path, plan)
                break
            except FileExistsError:
                pass  # the same grid's, at the same moment: then its runs are stored twice, and count once
        number += 1
    event = Extended(time=time.time(), plan=path.name, runs=added.runs, argv=tuple(sys.argv))
    write_request(directory, "extend", [event])
    return path


def _written(path: Path, text: str) -> bool:
    """Write the file. False if it exists with other content."""
    try:
        write_once(path, text)
    except FileExistsError:
        return path.read_text(encoding="utf-8") == text
    return True
