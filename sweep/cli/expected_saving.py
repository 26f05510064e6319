"""`sweep plan --show saving`: what a strategy would leave out of a plan, expected before anything is measured."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.progress_text import plural
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site
    from sweep.planning.runs import Plan
    from sweep.search.saving import Replay

DRAWS = 5
MOST_RUNS = 3000
"""the joint prior of more takes minutes and gigabytes"""


def expected_saving(grid: Grid, site: Site, plan: Plan) -> dict[str, Any]:
    """Per strategy (the grid's, and `guided`), the replays of the plan in worlds drawn from the prior.

    Raises SweepError for a plan of too many runs.
    """
    from sweep.planning.runs import runs_on
    from sweep.search.budget import Budget
    from sweep.search.candidates import from_plan
    from sweep.search.saving import replays
    from sweep.search.strategies import strategy_named

    if len(plan.runs) > MOST_RUNS:
        fact = (
            f"--show saving draws results of all runs together: {plural(len(plan.runs), 'run')} are over {MOST_RUNS:,}"
        )
        raise SweepError(Mistake(fact, remedy="narrow the grid, such as -o models=[8B] or -o nodes=[1,2]"))
    groups = [(runs_on(plan.runs, group), part.hardware) for group, part in site.parts.items()]
    sets = [from_plan(runs, gpu) for runs, gpu in groups if runs]
    limits, found = grid.budget.model_dump(exclude_none=True), {}
    for name in dict.fromkeys([grid.strategy, "guided"]):
        drawn: list[list[Replay]] = []
        for candidates in sets:
            budget = Budget.of(limits, len(candidates))
            drawn.append([])
            for number, one in enumerate(replays(candidates, strategy_named(name), budget, DRAWS), start=1):
                drawn[-1].append(one)
                _progress(f"{name}: simulated sweep {number} of {DRAWS}")
        found[name] = [_sum(parts) for parts in zip(*drawn, strict=True)]
    _progress("")
    hours = sum(float((one.nodes * one.expected_s).sum()) / 3600 for one in sets)
    return {"name": grid.name, "runs": len(plan.runs), "node_hours": hours, "strategies": found}


def show_saving(document: dict[str, Any]) -> None:
    """As a table: medians, and the range of the simulated sweeps."""
    from rich.console import Console
    from rich.table import Table

    title = f"{document['name']}: expected, not measured ({DRAWS} simulated sweeps)"
    table = Table("strategy", "runs", "node-hours", "below the best of a cell", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, drawn in document["strategies"].items():
        table.add_row(
            name,
            _range([one["runs"] for one in drawn], "{:,.0f}"),
            _range([one["node_hours"] for one in drawn], "{:,.2f}"),
            _range([100 * one["mean_regret"] for one in drawn], "{:.1f}%"),
        )
    table.add_row("all runs", f"{document['runs']:,}", f"{document['node_hours']:,.2f}", "0.0%", style="dim")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(
        "Results are drawn from the time and memory models with their uncertainty: a real cluster may differ."
    )


def _sum(parts: tuple[Replay, ...]) -> dict[str, float]:
    """Of the node groups' searches; the regret on average by runs of each."""
    runs = sum(one.runs for one in parts)
    regret = sum(one.mean_regret * one.runs for one in parts) / max(1, runs)
    return {"runs": runs, "node_hours": sum(one.node_hours for one in parts), "mean_regret": regret}


def _range(values: list[float], form: str) -> str:
    middle, low, high = (form.format(value) for value in (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)
