"""What a strategy is expected to leave out of a plan, before anything is measured."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sweep.planning.runs import Plan, runs_on
from sweep.search.budget import Budget
from sweep.search.candidates import from_plan
from sweep.search.saving import Replay, replays
from sweep.search.strategies import strategy_named

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site

DRAWS = 5
"""simulated sweeps: results drawn from the time and memory models with their uncertainty"""
MOST_RUNS = 1000
"""the joint prior of more takes many seconds"""


def expected_saving(plan: Plan, grid: Grid, site: Site) -> Mapping[str, Replay]:
    """The grid's strategy, and `guided` -> the median of its simulated sweeps. Empty where the plan is too large, and
    for a grid that asks for all its runs.
    """
    if not 0 < len(plan.runs) <= MOST_RUNS or (grid.strategy == "exhaustive" and not grid.limits):
        return {}
    groups = [(runs_on(plan.runs, group), part.hardware) for group, part in site.parts.items()]
    sets = [from_plan(runs, gpu) for runs, gpu in groups if runs]
    limits = grid.budget.model_dump(exclude_none=True)
    saving: dict[str, Replay] = {}
    for name in dict.fromkeys([grid.strategy, "guided"]):
        strategy = strategy_named(name)
        drawn = [replays(one, strategy, Budget.of(limits, len(one)), DRAWS) for one in sets]
        sums = [_sum(parts) for parts in zip(*drawn, strict=True)]
        saving[name] = Replay(
            round(statistics.median(one.runs for one in sums)),
            statistics.median(one.node_hours for one in sums),
            statistics.median(one.mean_regret for one in sums),
        )
    return saving


def _sum(parts: tuple[Replay, ...]) -> Replay:
    """Of the node groups' searches; the regret on average by runs of each."""
    runs = sum(one.runs for one in parts)
    regret = sum(one.mean_regret * one.runs for one in parts) / max(1, runs)
    return Replay(runs, sum(one.node_hours for one in parts), regret)
