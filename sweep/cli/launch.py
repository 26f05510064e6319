"""`sweep launch`, `resume` and `cancel`: from a grid to measured runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.cli.options import (
    FiniteRange,
    directory_argument,
    json_option,
    overrides_option,
    site_option,
    sweep_command,
    track_option,
)
from sweep.cli.progress_text import brief, counted, hours_text, hours_unit, plural
from sweep.cli.sources import chosen_sweep
from sweep.errors import Mistake, SweepError

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site
    from sweep.launcher.loop import Launcher
    from sweep.planning.runs import Plan
    from sweep.store.sweep import Sweep

FAILURES_SHOWN = 5
"""outcomes whose latest message the end of a launch shows"""


@click.command(cls=SweepCommand, short_help="Plan, submit pilots, and watch them to the end.")
@click.argument("grid_file", metavar="GRID", type=InputPath())
@overrides_option
@site_option
@click.option(
    "--executor", type=click.Choice(["slurm", "local"]), help="Default: slurm if its controller answers, else local."
)
@click.option(
    "--dir",
    "directory",
    type=OutputPath(directory=True),
    help="Sweep directory. Default: sweeps/<name of the grid>.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before anything is submitted.")
@click.option("--detach", is_flag=True, help="Submit and return; continue with `sweep status` and `sweep resume`.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the scripts; submit and write nothing.")
@click.option("--takeover", is_flag=True, help="Replace a launcher that holds the sweep.")
@track_option
@json_option
def launch(
    grid_file: Path,
    overrides: tuple[str, ...],
    site_given: str | None,
    executor: str | None,
    directory: Path | None,
    yes: bool,
    detach: bool,
    dry_run: bool,
    takeover: bool,
    tracker: str | None,
    as_json: bool,
) -> int:
    """Measure every run of a grid: plan it, submit pilots, watch them, and draw the heatmap.

    If the directory holds a sweep of the same grid, it resumes. It may be killed at any moment.

    \b
    Examples:
      sweep launch examples/laptop.yaml
      sweep launch grid.yaml --site h100.yaml --dir sweeps/first --yes
      sweep launch grid.yaml -o micro_batch_size=[1,2,4] -o iterations=10
      sweep launch grid.yaml --dry-run
    """
    from sweep.inputs.load import choose_executor, load_inputs
    from sweep.planning.build import build
    from sweep.store.directory import PROVENANCE
    from sweep.store.sweep import check_same, check_vacant, create, open_sweep

    chosen = choose_executor(executor)
    grid, site = load_inputs(grid_file, overrides, site_given, chosen)
    _check_tracker(tracker, detach, chosen)
    directory = directory or Path("sweeps") / grid.name
    exists = (directory / PROVENANCE).is_file()
    if exists:
        sweep = open_sweep(directory)
    else:
        check_vacant(directory)
        plan = build(grid, site)
        check_runnable(plan, grid, site, chosen)
        if dry_run:
            return _dry_run(plan, grid, site, chosen, as_json)
        if not yes and sys.stdin.isatty() and not click.confirm(_spending(plan, grid, site, chosen), err=True):
            raise click.Abort
        sweep = create(directory, grid, site, plan, executor=chosen, grid_text=grid_file.read_text(encoding="utf-8"))
    stated = site if site_given is not None or grid.site is not None else None
    check_same(sweep, grid, chosen, stated)  # also if another launch has just created it
    if dry_run:
        raise SweepError(Mistake("this sweep exists already", file=str(directory), remedy="`sweep status` shows it"))
    return _go_on(sweep, takeover=takeover, detach=detach, tracker=tracker, as_json=as_json)


@click.command(cls=SweepCommand, short_help="Continue exactly what is missing or may be retried.")
@directory_argument
@click.option("--detach", is_flag=True, help="Submit and return.")
@click.option("--yes", "-y", is_flag=True, expose_value=False, help="As for `launch`; resume asks nothing anyway.")
@click.option("--takeover", is_flag=True, help="Replace a launcher that holds the sweep.")
@track_option
@json_option
def resume(directory: Path | None, detach: bool, takeover: bool, tracker: str | None, as_json: bool) -> int:
    """Continue a sweep: what is missing or may be retried, and nothing else.

    \b
    Examples:
      sweep resume
      sweep resume sweeps/first --detach
    """
    from sweep.store.sweep import open_sweep

    sweep = open_sweep(chosen_sweep(directory).path)
    _check_tracker(tracker, detach, sweep.executor)
    return _go_on(sweep, takeover=takeover, detach=detach, tracker=tracker, as_json=as_json)


@click.command(cls=SweepCommand, short_help="Stop pilots and ranks; record every attempt.")
@directory_argument
@click.option(
    "--timeout", type=FiniteRange(min=0), default=120.0, show_default=True,
    help="Seconds to wait for the pilots to be gone.",
)  # fmt: skip
@json_option
def cancel(directory: Path | None, timeout: float, as_json: bool) -> int:
    """Stop a sweep: its pilots end their ranks, and every attempt that began is recorded.

    \b
    Examples:
      sweep cancel
      sweep cancel sweeps/first
    """
    from sweep.launcher.cancel import cancel_sweep
    from sweep.store.sweep import open_sweep

    sweep = open_sweep(chosen_sweep(directory).path)
    if (why := _nothing_to_cancel(sweep)) is not None:
        click.echo(json.dumps({"cancelled": False, "pilots_open": [], "reason": why})) if as_json else None
        click.echo(f"nothing to cancel: {why}", err=True)
        return 0
    gone, sweep_state = cancel_sweep(sweep, timeout)
    still = sorted(pilot.name for pilot in sweep_state.pilots.values() if pilot.open)
    if as_json:
        click.echo(json.dumps({"cancelled": gone, "pilots_open": still}))
    elif gone:
        click.echo(f"cancelled; `sweep resume {sweep.directory.path}` continues", err=True)
    else:
        click.echo(f"still there after {timeout:.0f} s: {', '.join(still)}; try again, or see `sweep status`", err=True)
    return 0 if gone else 1


def _nothing_to_cancel(sweep: Sweep) -> str | None:
    """Why a cancellation would change nothing; None where something runs, waits, or a launcher lives."""
    from sweep.store import lease
    from sweep.store.follow import FollowedSweep

    followed = FollowedSweep(sweep)
    followed.refresh()
    if lease.holder(sweep.directory) is not None or any(p.open for p in followed.sweep_state.pilots.values()):
        return None
    if followed.sweep_state.cancelled:
        return "the sweep is cancelled already"
    return "every run of the sweep has ended" if followed.at_rest else None


def check_runnable(plan: Plan, grid: Grid, site: Site, executor: str) -> None:
    """Raises SweepError if there is nothing to run, or if it cannot run here."""
    from sweep.inputs.load import max_local_ranks
    from sweep.planning.build import nothing_to_run

    mistakes = [] if plan.runs else [nothing_to_run(grid)]
    if executor == "local" and site.node_groups:
        fact = "the executor local has one kind of node, this machine, and the site has node_groups"
        mistakes.append(Mistake(fact, path="node_groups", remedy="another site, or --executor slurm"))
    widest = max((planned.nodes for planned in plan.runs), default=0) * site.gpus_per_node
    if executor == "local" and widest > max_local_ranks(site):
        fact = f"the widest run has {plural(widest, 'rank')}, and this machine may run {max_local_ranks(site)} at once"
        mistakes.append(grid.mistake(fact, ("nodes",), "fewer nodes, or max_local_ranks in the site"))
    if grid.max_run_time is not None and grid.max_run_time > site.pilot_time_s:
        fact = f"a run may take {grid.max_run_time:.0f} s, and a pilot has {site.pilot_time_s:.0f} s"
        mistakes.append(grid.mistake(fact, ("max_run_time",), "less, or a longer pilot_time in the site"))
    if mistakes:
        raise SweepError(mistakes)


def _spending(plan: Plan, grid: Grid, site: Site, executor: str) -> str:
    from sweep.launcher.submission import limits_of
    from sweep.planning.runs import runs_on
    from sweep.search.budget import Budget
    from sweep.search.finalists import room

    expected, most, count = 0.0, 0.0, 0
    for group, part in site.parts.items():  # a budget is each group's own
        runs = runs_on(plan.runs, group)
        budget = Budget.of(grid.budget.model_dump(), len(runs))
        nodes = sorted((planned.nodes for planned in runs), reverse=True)[: budget.runs]
        allowed = budget.node_hours or math.inf
        each_h = sum(run.nodes * run.expected_s for run in runs) / 3600 / max(1, len(runs)) * len(nodes)
        expected += min(each_h, allowed) * part.gpus_per_node
        most += min(sum(nodes) * limits_of(grid).attempt_s / 3600, allowed) * part.gpus_per_node
        count += len(nodes)
    pilots = sum(part.max_pilots for part in site.parts.values())
    where = "on this machine" if executor == "local" else f"on Slurm, up to {plural(pilots, 'pilot')} at once"
    estimate = f"about {hours_text(expected)} {hours_unit(site)}"
    limit = f"at most {hours_text(most)} if each took its time limit"
    repeats = room(grid.finalists_share, count)
    again = f"; then up to {plural(repeats, 'finalist')} once more" if repeats else ""
    return f"{plural(count, 'run')} {where}: {estimate}, {limit}{again}. Continue?"


def _dry_run(plan: Plan, grid: Grid, site: Site, executor: str, as_json: bool) -> int:
    """What would be submitted first, for each node count."""
    from sweep.launcher.dry_run import first_scripts

    scripts = first_scripts(plan, grid, site, executor)
    if as_json:
        click.echo(json.dumps({"runs": len(plan.runs), "executor": executor, "scripts": scripts}))
        return 0
    click.echo(f"{plural(len(plan.runs), 'run')}; nothing was written or submitted", err=True)
    for width, script in scripts.items():
        click.echo(f"# pilot of {plural(int(width), 'node')}\n{script}")
    return 0


def _check_tracker(tracker: str | None, detach: bool, executor: str) -> None:
    """Raises SweepError if the named tracker is not available, before anything is written or submitted."""
    if tracker is not None:
        from sweep.cli.track import check_tracker

        check_tracker(tracker, detach=detach, executor=executor)


def _go_on(sweep: Sweep, *, takeover: bool, detach: bool, tracker: str | None, as_json: bool) -> int:
    from sweep.launcher.loop import Launcher, executor_of
    from sweep.store import lease

    if detach and sweep.executor == "local":
        return _detach_local(sweep, takeover, tracker, as_json)
    launcher = Launcher(sweep, lease.take(sweep.directory, takeover=takeover), executor_of(sweep))
    if detach:
        return _submit_and_leave(sweep, launcher, as_json)
    return _watch(sweep, launcher, tracker, as_json)


def _submit_and_leave(sweep: Sweep, launcher: Launcher, as_json: bool) -> int:
    """One poll and its actions; 1 if runs wait and no pilot was submitted."""
    from sweep.launcher.submission import StuckError

    path = sweep.directory.path
    try:
        launcher.step()
    except StuckError as error:
        click.echo(f"error: {error}", err=True)
    launcher.close()
    jobs = [pilot.job_id for pilot in launcher.sweep_state.pilots.values() if pilot.open and pilot.job_id is not None]
    if as_json:
        click.echo(json.dumps({"directory": str(path), "jobs": jobs}))
    if not jobs and not launcher.done:
        click.echo(f"error: no pilot could be submitted; try again with `sweep resume {path} --detach`", err=True)
        return 1
    click.echo(f"{plural(len(jobs), 'pilot')} submitted; `sweep status {path}` shows its progress", err=True)
    return 0


def _detach_local(sweep: Sweep, takeover: bool, tracker: str | None, as_json: bool) -> int:
    """This machine has no scheduler: a launcher in the background replaces it."""
    path = sweep.directory.path
    with (path / "launcher.out").open("ab") as output:
        command = sweep_command("resume", str(path), *["--takeover"] * takeover)
        command += ["--track", tracker] if tracker is not None else []
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    if as_json:
        click.echo(json.dumps({"directory": str(path), "launcher_pid": process.pid}))
    click.echo(f"launcher {process.pid} runs in the background; `sweep status {path}` shows its progress", err=True)
    return 0


def _watch(sweep: Sweep, launcher: Launcher, tracker: str | None, as_json: bool) -> int:
    """The live view, to the end; then results and heatmap."""
    from sweep.cli.live import live_view
    from sweep.cli.track import tracking_alongside
    from sweep.launcher.loop import give_back
    from sweep.launcher.submission import StuckError
    from sweep.store.lease import LeaseLostError

    give_back()
    try:
        with tracking_alongside(sweep, tracker), live_view() as show:
            launcher.run(show)
    except (StuckError, LeaseLostError) as error:
        click.echo(f"error: {error}", err=True)
        if isinstance(error, StuckError):
            launcher.close()
        return 1
    except KeyboardInterrupt:
        return _interrupted(sweep, launcher)
    return _finish(sweep, launcher, as_json)


def _interrupted(sweep: Sweep, launcher: Launcher) -> int:
    """Ctrl-C: on this machine it means stop; on a cluster the pilots run without the launcher."""
    path = sweep.directory.path
    if sweep.executor == "local":
        click.echo("stopping the ranks …", err=True)
        launcher.cancel(60.0, lambda _followed: None)
        click.echo(f"stopped; `sweep resume {path}` continues", err=True)
    else:
        click.echo(f"pilots run on; `sweep resume {path}` watches them, `sweep cancel {path}` stops them", err=True)
    launcher.close()
    return 130


def _finish(sweep: Sweep, launcher: Launcher, as_json: bool) -> int:
    from sweep.cli.best import show_best
    from sweep.cli.results import draw_heatmap
    from sweep.launcher.loop import give_back

    give_back()
    sweep, followed = launcher.followed.sweep, launcher.followed
    found = dict(followed.tally.counts(followed.left_out()))
    path = sweep.directory.path
    picture = draw_heatmap(sweep.directory) if found.get("ok") else None
    summary: dict[str, Any] = {"directory": str(path), "runs": len(sweep.runs), "counts": found, "time": time.time()}
    summary["heatmap"] = str(picture) if picture is not None else None
    if as_json:
        click.echo(json.dumps(summary))
    words = ", ".join(text for text, _ in counted(found))
    click.echo(f"{path}: {plural(len(sweep.runs), 'run')}: {words}", err=True)
    failures = followed.tally.failures
    for outcome in list(failures)[:FAILURES_SHOWN]:
        click.echo(f"{outcome}: {brief(followed.tally.example(outcome)) or 'no message'}", err=True)
    if failures:
        click.echo(f"`sweep status {path}` names the runs, `sweep explain {path} RUN` says what to try", err=True)
    if picture is not None:
        show_best([path])
        click.echo(f"heatmap: {picture}", err=True)
    return 0 if found.get("ok") and not launcher.sweep_state.cancelled else 1
