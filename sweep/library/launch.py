"""From a grid to measured runs: create or extend a sweep, submit its pilots, watch them to the end; resume, cancel."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench_workloads.interpreter import module_command
from sweep.errors import Mistake, SweepError
from sweep.executors.executor import Executor, PilotRequest
from sweep.inputs.grid import Grid
from sweep.inputs.load import choose_executor, load_site
from sweep.inputs.site import Site
from sweep.launcher.launcher import Launcher
from sweep.launcher.loop import POLL_S, Loop
from sweep.launcher.pilots_wanted import pilots_wanted
from sweep.launcher.submission import StuckError, capacity_of
from sweep.library.plan import Estimate, check_runnable, estimate, unknown_path, with_fabric
from sweep.library.sources import status
from sweep.library.winners import draw_heatmap
from sweep.planning.build import build
from sweep.planning.runs import Plan, runs_on
from sweep.plugins import EXECUTOR
from sweep.state.events import CancelRequested
from sweep.state.state import SweepState
from sweep.store import lease
from sweep.store.create import check_same, check_vacant, create, keep_private
from sweep.store.directory import SweepDir, find_sweep
from sweep.store.extend import Extension, extend, extension, mistakes_of
from sweep.store.journal import write_request
from sweep.store.place import adopt as adopt_copy
from sweep.store.place import check_own
from sweep.store.sharing import group_id
from sweep.store.sweep import Sweep, open_sweep

OnStep = Callable[[Sweep], None]
Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What a launch came to: to the sweep's end, or, detached, to its first pilots."""

    directory: Path
    runs: int
    ended: bool = False
    """no run waits and no pilot is open"""
    cancelled: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    """state or outcome -> runs; empty if the launch did not wait for the end"""
    failures: Mapping[str, str] = field(default_factory=dict)
    """outcome -> the latest message of such a run, the most frequent outcome first"""
    unmeasured: tuple[str, ...] = ()
    """runs without a measurement, by failures that were not their own: a resume tries them again"""
    heatmap: Path | None = None
    """None if no run is ok"""
    jobs: tuple[str, ...] = ()
    """of the pilots that a detached launch left"""
    background: int | None = None
    """the process that goes on with it on this machine"""
    holder: str | None = None
    """another launcher, which goes on with what was added"""
    added: Extension | None = None
    """by a grid that extends the sweep"""


@dataclass(frozen=True, kw_only=True)
class Cancelled:
    """The result of a cancellation."""

    directory: Path
    open_pilots: tuple[str, ...]
    """those that are not known to be gone"""
    nothing: str | None = None
    """why there was nothing to cancel"""


def launch(
    grid: Grid,
    site: Site | None = None,
    *,
    directory: Path | str | None = None,
    executor: str | None = None,
    add: bool = False,
    detach: bool = False,
    approve: Callable[[Estimate], None] | None = None,
    on_step: OnStep = lambda _sweep: None,
    note: Note = lambda _text: None,
) -> Launched:
    """Measure every run of a grid: plan it, submit pilots, watch them to the end, and draw the heatmap.

    ``site``: by default the grid's own, otherwise detected. ``directory``: by default sweeps/<name of the grid>; one
    that holds a sweep of the same grid is resumed. ``add``: extend the sweep there by the grid's runs. ``detach``:
    return once pilots are submitted. ``approve`` is called before a new sweep is written, and may raise;
    ``on_step`` after each step; ``note`` with what a user should know meanwhile.

    Raises SweepError with every mistake; its subclasses StuckError and LeaseLostError where the work cannot go on; and
    KeyboardInterrupt, after the ranks of this machine are stopped.
    """
    directory, stated, added = directory_of(grid, directory), site or grid.site, None
    if add:
        sweep = open_sweep(directory)
        added = added_by(sweep, grid, stated, executor)
        if not added.empty:
            _say(note, keep_private(sweep.directory, grid.to_yaml(), *sys.argv))
            extend(sweep.directory, grid, added)
            sweep = open_sweep(directory)
        if (holder := lease.holder(sweep.directory)) is not None:
            return Launched(directory=sweep.directory.path, runs=len(sweep.runs), holder=holder, added=added)
    else:
        executor = choose_executor(executor)
        if SweepDir(directory).provenance.is_file():
            sweep = open_sweep(directory)
        else:
            site, plan = new_plan(grid, stated, directory, executor)
            if approve is not None:
                approve(estimate(plan, grid, site, executor))
            sweep = create(directory, grid, site, plan, executor=executor)
            _say(note, keep_private(sweep.directory, created=site))
            _say(note, unknown_path(site, grid.nodes))
        check_same(sweep, grid, executor, stated)  # also if another launch has just created it
    launched = _go_on(sweep, takeover=False, detach=detach, on_step=on_step, note=note)
    return replace(launched, added=added)


def resume(
    directory: Path | str,
    *,
    takeover: bool = False,
    adopt: bool = False,
    detach: bool = False,
    on_step: OnStep = lambda _sweep: None,
    note: Note = lambda _text: None,
) -> Launched:
    """Continue a sweep: what is missing or may be retried, and nothing else. Arguments and errors as of ``launch``.

    ``adopt``: of a copy, which becomes a sweep of its own; the original and its pilots are not touched.
    """
    if adopt:
        adopt_copy(find_sweep(Path(directory)))
    sweep = open_sweep(directory)
    return _go_on(sweep, takeover=takeover or adopt, detach=detach, on_step=on_step, note=note)


def cancel(directory: Path | str, timeout_s: float = 120.0) -> Cancelled:
    """Stop a sweep: its pilots end their ranks, and every attempt that began is recorded. Waits for the pilots' end.

    Raises SweepError where there is no sweep.
    """
    sweep = status(directory)
    check_own(sweep.directory)
    if lease.holder(sweep.directory) is None and not _open(sweep) and (sweep.sweep_state.cancelled or sweep.at_rest):
        ended = "every run of the sweep has ended"
        why = "the sweep is cancelled already" if sweep.sweep_state.cancelled else ended
        return Cancelled(directory=sweep.directory.path, open_pilots=(), nothing=why)
    try:
        launcher = Launcher(sweep)
    except SweepError:  # a living launcher reads it from the journals, ends its pilots, and exits
        request = CancelRequested(time=time.time()).answering(sweep.sweep_state.latest)
        write_request(sweep.directory, "cancel", [request])
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            sweep.refresh()
            if not _open(sweep):
                break
            time.sleep(POLL_S)
    else:
        Loop(launcher).cancel(timeout_s)
        launcher.close()
    return Cancelled(directory=sweep.directory.path, open_pilots=tuple(_open(sweep)))


def _open(sweep: Sweep) -> list[str]:
    return sorted(pilot.name for pilot in sweep.sweep_state.pilots.values() if pilot.open)


def dry_run(
    grid: Grid, site: Site | None = None, *, directory: Path | str | None = None, executor: str | None = None
) -> dict[str, Any]:
    """What `launch` with these arguments would submit: the number of ``runs``, the ``executor``, and the ``scripts`` of
    the first pilot of each width in nodes (with @ and the node group if there are some).

    Raises SweepError as that does, and if the sweep exists.
    """
    directory, executor = directory_of(grid, directory), choose_executor(executor)
    stated = site or grid.site
    if SweepDir(directory).provenance.is_file():
        check_same(open_sweep(directory), grid, executor, stated)
        raise SweepError(Mistake("this sweep exists already", file=str(directory), remedy="`sweep status` shows it"))
    site, plan = new_plan(grid, stated, directory, executor)
    made: Executor = EXECUTOR.find(executor)(site, directory.resolve())
    scripts: dict[str, str] = {}
    capacities = [capacity_of(grid, site, executor, node_group=group) for group in site.parts]
    wanted_of = [pilots_wanted(runs_on(plan.runs, one.node_group), SweepState(), one) for one in capacities]
    for number, wanted in enumerate(itertools.chain.from_iterable(wanted_of), start=1):
        name = f"p{number:04d}"
        token = f"{grid.name}-{name}"
        request = PilotRequest(
            token=token, name=name, nodes=wanted.nodes, time_limit_s=wanted.time_limit_s, node_group=wanted.node_group
        )
        width = f"{wanted.nodes}@{wanted.node_group}" if wanted.node_group else str(wanted.nodes)
        scripts.setdefault(width, made.script(request))
    return {"runs": len(plan.runs), "executor": executor, "scripts": scripts}


def directory_of(grid: Grid, directory: Path | str | None) -> Path:
    """The one named, or sweeps/<name of the grid>."""
    return Path("sweeps") / grid.name if directory is None else Path(directory)


def new_plan(grid: Grid, stated: Site | None, directory: Path, executor: str) -> tuple[Site, Plan]:
    """The site and the plan of a sweep that can be created in the directory, and run. Raises SweepError."""
    check_vacant(directory)
    site = stated or load_site(grid, None, executor)
    site = with_fabric(site) if executor == "slurm" else site
    if site.group is not None:
        group_id(site.group)
    plan = build(grid, site)
    check_runnable(plan, grid, site, executor)
    for nodes in {run.nodes for run in plan.runs} if site.segment is not None else ():
        request = PilotRequest(token=grid.name, name="p0001", nodes=nodes, time_limit_s=60)
        EXECUTOR.find(executor)(site, directory.resolve()).script(request)  # Slurm may have no segments of that kind
    return site, plan


def added_by(sweep: Sweep, grid: Grid, site: Site | None, executor: str | None) -> Extension:
    """What a grid would add to a sweep. Raises SweepError with every reason why it cannot extend it."""
    check_own(sweep.directory)
    mistakes = mistakes_of(sweep, grid, site)
    if executor not in (None, sweep.executor):
        fact = f"this sweep was started with the executor {sweep.executor}, not {executor}"
        mistakes.append(Mistake(fact, file=str(sweep.directory.path), remedy=f"--executor {sweep.executor}"))
    if mistakes:
        raise SweepError(mistakes)
    plan = build(grid, sweep.site)
    check_runnable(plan, grid, sweep.site, sweep.executor)
    return extension(sweep, grid, plan)


def _say(note: Note, text: str | None) -> None:
    if text is not None:
        note(text)


def _go_on(sweep: Sweep, *, takeover: bool, detach: bool, on_step: OnStep, note: Note) -> Launched:
    check_own(sweep.directory)
    _say(note, keep_private(sweep.directory))
    directory = sweep.directory.path
    if detach and sweep.executor == "local":  # no scheduler here: a launcher in the background replaces it
        words = module_command("sweep.cli.main", "resume", str(directory), *(["--takeover"] * takeover))
        with (directory / "launcher.out").open("ab") as out:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        return Launched(directory=directory, runs=len(sweep.runs), background=process.pid)
    launcher = Launcher(replace(sweep), takeover=takeover)
    launcher.renew_tries()
    if detach:
        try:
            Loop(launcher).step()
        except StuckError as error:
            note(f"error: {error}")
        launcher.close()
        jobs = tuple(pilot.job_id for pilot in launcher.open_pilots if pilot.job_id is not None)
        return Launched(directory=directory, runs=len(launcher.sweep.runs), ended=launcher.done, jobs=jobs)
    try:
        Loop(launcher, on_step).run()
    except StuckError:
        launcher.close()
        raise
    except (KeyboardInterrupt, BrokenPipeError):
        # Ctrl-C, or a closed output: on this machine it means stop; on a cluster the pilots run without the launcher.
        if launcher.local:
            note("stopping the ranks …")
            Loop(launcher).cancel(60.0)
            note(f"stopped; `sweep resume {directory}` continues")
        else:
            note(f"pilots run on; `sweep resume {directory}` watches them, `sweep cancel {directory}` stops them")
        launcher.close()
        raise
    sweep, tally = launcher.sweep, launcher.sweep.tally
    launched = Launched(
        directory=directory,
        runs=len(sweep.runs),
        ended=True,
        cancelled=sweep.sweep_state.cancelled,
        counts=dict(tally.counts(sweep.skipped())),
        failures={str(outcome): tally.example(outcome) for outcome in tally.failures},
        unmeasured=tuple(sweep.unmeasured()),
    )
    del launcher, sweep, tally  # with its search and sums: drawing needs the memory
    return replace(launched, heatmap=draw_heatmap([directory])[0] if launched.counts.get("ok") else None)
