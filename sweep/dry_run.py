"""What a launch would submit, without writing or submitting anything."""

from __future__ import annotations

import importlib
from pathlib import Path

from sweep.executors import EXECUTORS, Executor, PilotRequest
from sweep.grid import Grid
from sweep.plan import Plan
from sweep.site import Site


def first_scripts(plan: Plan, grid: Grid, site: Site, executor: str) -> dict[int, str]:
    """Width in nodes -> the script of its first pilot."""
    module, attribute = EXECUTORS[executor].split(":")
    directory = Path("sweeps").resolve() / grid.name
    made: Executor = getattr(importlib.import_module(module), attribute)(site, directory)
    scripts = {}
    for number, width in enumerate(sorted({planned.nodes for planned in plan.runs}), start=1):
        name = f"p{number:04d}"
        request = PilotRequest(token=f"{grid.name}-{name}", name=name, nodes=width, time_limit_s=int(site.pilot_time_s))
        scripts[width] = made.script(request)
    return scripts
