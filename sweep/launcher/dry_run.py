"""What a launch would submit, without writing or submitting anything."""

from __future__ import annotations

from pathlib import Path

from sweep.executors.executor import Executor, PilotRequest
from sweep.inputs.grid import Grid
from sweep.inputs.site import Site
from sweep.launcher.pilots_wanted import pilots_wanted
from sweep.launcher.submission import capacity_of
from sweep.plan.runs import Plan
from sweep.plugins import find_executor
from sweep.state.state import SweepState


def first_scripts(plan: Plan, grid: Grid, site: Site, executor: str) -> dict[int, str]:
    """Width in nodes -> the script of its first pilot."""
    directory = Path("sweeps").resolve() / grid.name
    made: Executor = find_executor(executor)(site, directory)
    scripts: dict[int, str] = {}
    capacity = capacity_of(grid, site, executor, SweepState())
    for number, wanted in enumerate(pilots_wanted(plan.runs, SweepState(), capacity), start=1):
        name = f"p{number:04d}"
        token = f"{grid.name}-{name}"
        request = PilotRequest(token=token, name=name, nodes=wanted.nodes, time_limit_s=wanted.time_limit_s)
        scripts.setdefault(wanted.nodes, made.script(request))
    return scripts
