"""A plan and its runs, read back from its table. Needs nothing but pyarrow, so that a pilot can do it cheaply."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from sweep.contract import Run, node_group_of

ASSUMED_RUN_S = 60.0
"""assumed duration of one attempt if nothing was measured and the hardware's speed is unknown"""

ASSUMED_START_S = 30.0
"""seconds of import, rendezvous, build and teardown that are in a predicted attempt, before any is measured"""

RUN_COLUMNS = ["run_id", "model", "nodes", "predicted_s", "run_json"]
"""the columns of a plan's table that ``runs_of`` reads: a caller that needs no others need not load them"""


class PlannedRun(NamedTuple):
    """One run of a plan: the fields needed to schedule it, the rest on demand. A tuple: a plan has many thousands."""

    run_id: str
    model: str
    nodes: int
    predicted_s: float | None
    """estimated seconds of one attempt; None if the hardware's speed is unknown"""
    run_json: str
    """canonical JSON of the run"""

    @property
    def expected_s(self) -> float:
        """Seconds of one attempt, from the plan alone."""
        return self.predicted_s or ASSUMED_RUN_S

    @property
    def node_group(self) -> str:
        """On which it is measured; empty on a site without node groups."""
        return node_group_of(self.model)

    @property
    def configuration(self) -> str:
        """What a run and its repeats have in common: its JSON without ``repeat``."""
        before, _, after = self.run_json.rpartition(',"repeat":')
        return before + after[after.index(",") :] if before else self.run_json

    @property
    def repeat(self) -> int:
        """0 of a configuration's first run."""
        before, _, after = self.run_json.rpartition(',"repeat":')
        return int(after[: after.index(",")]) if before else self.run().repeat

    def run(self) -> Run:
        """The run in full."""
        return Run.from_json(self.run_json)


@dataclass(frozen=True)
class Plan:
    """All runs and all rejected candidates of one grid on one site."""

    name: str
    table: Any
    """pyarrow.Table of ``sweep.planning.table.SCHEMA``: runs first, in the order in which they are to be measured"""

    def __repr__(self) -> str:
        return f"<plan {self.name}: {self.run_count:,} runs of {len(self.table):,} candidates>"

    @cached_property
    def runs(self) -> tuple[PlannedRun, ...]:
        """The runs, in the order in which they are to be measured."""
        return runs_of(self.table)

    @property
    def run_count(self) -> int:
        """Number of runs; creates none of them."""
        column = self.table.column("run_id")
        return len(column) - int(column.null_count)


def runs_of(table: Any) -> tuple[PlannedRun, ...]:
    """The runs of a plan's table (pyarrow.Table). Reads the RUN_COLUMNS of it."""
    ids = table.column("run_id")
    runs = table.select(RUN_COLUMNS).slice(0, len(ids) - ids.null_count)  # the runs come first, in their order
    columns = [_values_of(column) for column in runs.columns]
    return tuple(map(PlannedRun._make, zip(*columns, strict=True)))


def _values_of(column: Any) -> list[Any]:
    """A column's values. In a dictionary column, each text is created once: to_pylist creates it for every row."""
    if not all(hasattr(chunk, "dictionary") for chunk in column.chunks):
        values: list[Any] = column.to_pylist()
        return values
    found = []
    for chunk in column.chunks:
        texts = chunk.dictionary.to_pylist()
        found += [None if place is None else texts[place] for place in chunk.indices.to_pylist()]
    return found


def runs_on(runs: Sequence[PlannedRun], node_group: str) -> Sequence[PlannedRun]:
    """The runs that are measured on a node group; all of them on a site without groups, whose name of one is empty."""
    return [run for run in runs if run.node_group == node_group] if node_group else runs


def runs_of_all(tables: Iterable[Any]) -> tuple[PlannedRun, ...]:
    """The runs of a sweep's plans, one plan after the other. A run that is in two of them counts in the first."""
    plans = [runs_of(table) for table in tables]
    if len(plans) == 1:
        return plans[0]
    found: dict[str, PlannedRun] = {}
    for run in itertools.chain.from_iterable(plans):
        found.setdefault(run.run_id, run)
    return tuple(found.values())
