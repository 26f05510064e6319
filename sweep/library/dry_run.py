"""What a launch would submit, without writing or submitting anything."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import Mistake, SweepError
from sweep.executors.executor import Executor, PilotRequest
from sweep.inputs.grid import Grid
from sweep.inputs.load import choose_executor
from sweep.inputs.site import Site
from sweep.launcher.pilots_wanted import pilots_wanted
from sweep.launcher.submission import capacity_of
from sweep.library.launch import directory_of, new_plan
from sweep.planning.runs import Plan, runs_on
from sweep.plugins import find_executor
from sweep.state.state import SweepState
from sweep.store.directory import SweepDir
from sweep.store.sweep import check_same, open_sweep


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a launch would begin with."""

    runs: int
    executor: str
    scripts: Mapping[str, str]
    """width in nodes, with @ and the node group if there are some -> the script of its first pilot"""


def dry_run(
    grid: Grid, site: Site | None = None, *, directory: Path | str | None = None, executor: str | None = None
) -> DryRun:
    """What `launch` with these arguments would submit. Raises SweepError as that does, and if the sweep exists."""
    directory, executor = directory_of(grid, directory), choose_executor(executor)
    stated = site or grid.site
    if SweepDir(directory).provenance.is_file():
        check_same(open_sweep(directory), grid, executor, stated)
        raise SweepError(Mistake("this sweep exists already", file=str(directory), remedy="`sweep status` shows it"))
    site, plan = new_plan(grid, stated, directory, executor)
    return DryRun(runs=len(plan.runs), executor=executor, scripts=_first_scripts(plan, grid, site, directory, executor))


def _first_scripts(plan: Plan, grid: Grid, site: Site, directory: Path, executor: str) -> dict[str, str]:
    made: Executor = find_executor(executor)(site, directory.resolve())
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
