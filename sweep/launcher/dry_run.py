"""What a launch would submit, without writing or submitting anything."""

from __future__ import annotations

import itertools
from pathlib import Path

from sweep.executors.executor import Executor, PilotRequest
from sweep.inputs.grid import Grid
from sweep.inputs.site import Site
from sweep.launcher.pilots_wanted import pilots_wanted
from sweep.launcher.submission import capacity_of
from sweep.planning.runs import Plan, runs_on
from sweep.plugins import find_executor
from sweep.state.state import SweepState


def first_scripts(plan: Plan, grid: Grid, site: Site, executor: str) -> dict[str, str]:
    """Width in nodes, with @ and the node group if there are some -> the script of its first pilot."""
    directory = Path("sweeps").resolve() / grid.name
    made: Executor = find_executor(executor)(site, directory)
    scripts: dict[str, str] = {}
    capacities = [capacity_of(grid, site, executor, SweepState(), node_group=group) for group in site.parts]
    wanted_of = [pilots_wanted(runs_on(plan.runs, one.node_group), SweepState(), one) for one in capacities]
    for number, wanted in enumerate(itertools.chain.from_iterable(wanted_of), start=1):
        name = f"p{number:04d}"
        token = f"{grid.name}-{name}"
        request = PilotRequest(
            token=token, name=name, nodes=wanted.nodes, time_limit_s=wanted.time_limit_s, node_group=wanted.node_group
        )
        width = f"{wanted.nodes}@{wanted.node_group}" if wanted.node_group else str(wanted.nodes)
        scripts.setdefault(width, made.script(request))
    return scripts
