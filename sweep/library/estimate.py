"""What a plan is expected to cost, and whether it can run here: known before anything is submitted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sweep.errors import Mistake, SweepError
from sweep.inputs.grid import Grid, max_run_s
from sweep.inputs.load import max_local_ranks
from sweep.inputs.site import Site
from sweep.physics.job import saves
from sweep.planning.build import nothing_to_run
from sweep.planning.runs import Plan, runs_on
from sweep.search.budget import Budget
from sweep.search.remeasure import room


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a launch is about to spend."""

    runs: int
    """that the budget has room for"""
    repeats: int
    """of top configurations, at most, once they have ended"""
    gpu_hours: float
    """of all these runs in full, without repeats"""
    expected_runs: int | None
    expected_gpu_hours: float | None
    """what the strategy is expected to spend, by simulated sweeps; None where that is not known"""
    most_gpu_hours: float
    """if each run took its time limit"""
    cpu: bool
    """whether there is no GPU: the hours are of ranks"""
    pilots: int | None
    """at once, at most; None: on this machine"""


def estimate(plan: Plan, grid: Grid, site: Site, executor: str) -> Estimate:
    """The plan's runs, as far as the budget of each node group reaches."""
    from sweep.library.plan import expected_saving  # a quarter of a second, which a resume does not need

    expected, most, count = 0.0, 0.0, 0
    for group, part in site.parts.items():  # a budget is each group's own
        runs = runs_on(plan.runs, group)
        budget = Budget.of(grid.budget.model_dump(), len(runs))
        nodes = sorted((planned.nodes for planned in runs), reverse=True)[: budget.runs]
        allowed = budget.node_hours or math.inf
        each_h = sum(run.nodes * run.expected_s for run in runs) / 3600 / max(1, len(runs)) * len(nodes)
        expected += min(each_h, allowed) * part.gpus_per_node
        most += min(sum(nodes) * max_run_s(grid) / 3600, allowed) * part.gpus_per_node
        count += len(nodes)
    expected_by = expected_saving(plan, grid, site).get(grid.strategy)
    same = len({part.gpus_per_node for part in site.parts.values()}) == 1
    return Estimate(
        expected_runs=expected_by.runs if expected_by else None,
        expected_gpu_hours=expected_by.node_hours * site.gpus_per_node if expected_by and same else None,
        runs=count,
        repeats=room(grid.remeasure_share, count),
        gpu_hours=expected,
        most_gpu_hours=most,
        cpu=site.gpu == "cpu",
        pilots=None if executor == "local" else sum(part.max_pilots for part in site.parts.values()),
    )


def check_runnable(plan: Plan, grid: Grid, site: Site, executor: str) -> None:
    """Raises SweepError if there is nothing to run, or if it cannot run here."""
    mistakes = [] if plan.runs else [nothing_to_run(grid)]
    if executor == "local" and site.node_groups:
        fact = "the executor local has one kind of node, this machine, and the site has node_groups"
        mistakes.append(Mistake(fact, path="node_groups", remedy="another site, or --executor slurm"))
    saving = (planned.run() for planned in plan.runs if '"checkpoint":' in planned.run_json)
    if site.checkpoint_dir is None and any(saves(run.params) for run in saving):
        fact, remedy = "the site states no checkpoint_dir", "checkpoint_dir: DIRECTORY in the site"
        mistakes.append(grid.mistake(fact, ("params", "checkpoint"), remedy))
    ranks = max((planned.nodes for planned in plan.runs), default=0) * site.gpus_per_node
    if executor == "local" and ranks > max_local_ranks(site):
        fact = f"the widest run has {ranks:,} ranks, and this machine may run {max_local_ranks(site)} at once"
        mistakes.append(grid.mistake(fact, ("nodes",), "fewer nodes, or max_local_ranks in the site"))
    if grid.max_run_time is not None and grid.max_run_time > site.pilot_time_s:
        fact = f"a run may take {grid.max_run_time:.0f} s, and a pilot has {site.pilot_time_s:.0f} s"
        mistakes.append(grid.mistake(fact, ("max_run_time",), "less, or a longer pilot_time in the site"))
    if mistakes:
        raise SweepError(mistakes)
