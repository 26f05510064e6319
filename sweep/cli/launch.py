"""`sweep launch`, `demo`, `resume` and `cancel`: from a grid to measured runs."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, SweepCommand
from sweep.cli.live import live_view
from sweep.cli.names import (
    directory_argument,
    directory_option,
    executor_option,
    json_option,
    overrides_option,
    site_option,
)
from sweep.cli.progress_text import brief, counted, hours_text, unmeasured_text
from sweep.cli.sources import chosen_sweep
from sweep.errors import Mistake, SweepError, plural
from sweep.files import shipped_folder

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site
    from sweep.library.launch import Launched
    from sweep.library.plan import Estimate
    from sweep.store.extend import Extension

FAILURES_SHOWN = 5
"""outcomes whose latest message the end of a launch shows"""
NO_TORCH = (
    "`pip install torch`. Without a GPU the CPU build is enough (about 200 MB; on Linux pip's default index has the "
    "CUDA build, over 2 GB with its libraries): PyTorch's installation page names its index of CPU builds"
)


@click.command(cls=SweepCommand)
@click.argument("grid_file", metavar="GRID", type=InputPath())
@overrides_option
@site_option
@executor_option
@directory_option("Sweep directory. Default: sweeps/<name of the grid>.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before anything is submitted.")
@click.option("--detach", is_flag=True, help="Submit and return; continue with `sweep status` and `sweep resume`.")
@click.option("--add", is_flag=True, help="Add the grid's runs to the sweep in DIR, which has another grid.")
@click.option("--dry-run", is_flag=True, help="Show what would be submitted or added; submit and write nothing.")
@json_option
def launch(
    grid_file: Path,
    overrides: tuple[str, ...],
    site_given: str | None,
    executor: str | None,
    directory: Path | None,
    yes: bool,
    detach: bool,
    add: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Measure every run of a grid: plan it, submit pilots, watch them, and draw the heatmap.

    Safe to kill; run again to resume. With --add, another grid's new runs are added to the sweep in DIR. A cell must
    mean the same in both: workload, sequence length, batch, seed, models of one name, and site. The last grid's
    strategy, budget and timeouts apply to the whole sweep.

    \b
    Examples:
      sweep launch examples/laptop.yaml
      sweep launch grid.yaml --site h100.yaml --dir sweeps/first --yes
      sweep launch grid.yaml -o micro_batch_size=[1,2,4] -o iterations=10
      sweep launch grid.yaml --dry-run
      sweep launch wider.yaml --dir sweeps/first --add
    """
    from sweep.inputs.load import load_inputs

    grid, site = load_inputs(grid_file, overrides, site_given)
    if dry_run:
        return _dry_run(grid, site, directory, executor, add=add, as_json=as_json)
    from sweep.library.launch import launch as launch_sweep

    ask = not yes and sys.stdin.isatty()
    with live_view() as show:
        launched = launch_sweep(
            grid,
            site,
            directory=directory,
            executor=executor,
            add=add,
            detach=detach,
            approve=_ask if ask else None,
            on_step=show,
            note=note,
        )
    return show_launched(launched, detach=detach, as_json=as_json)


@click.command(cls=SweepCommand)
@directory_option("Sweep directory.", Path("sweeps") / "demo")
def demo(directory: Path) -> int:
    """Measure 16 layouts of two tiny models with real torch processes on this machine, and draw the heatmap.

    Needs no GPU and no Slurm; takes a few minutes. The grid is examples/laptop.yaml; the best layouts are measured
    twice. Safe to kill; run again to resume.

    \b
    Examples:
      sweep demo
      sweep demo --dir /tmp/demo
    """
    from sweep.inputs.load import load_grid
    from sweep.library.launch import launch as launch_sweep

    if importlib.util.find_spec("torch") is None:
        raise SweepError(Mistake("the demo trains with torch, which is not installed here", remedy=NO_TORCH))
    grid = load_grid(shipped_folder("examples") / "laptop.yaml")
    with live_view() as show:
        launched = launch_sweep(
            grid, directory=directory, executor="local", on_step=show, note=note,
            approve=lambda about: note(f"sweep: {cost_text(about)}"),
        )  # fmt: skip
    return show_launched(launched, detach=False, as_json=False)


@click.command(cls=SweepCommand)
@directory_argument
@click.option("--detach", is_flag=True, help="Submit and return.")
@click.option("--takeover", is_flag=True, help="Replace a launcher that holds the sweep.")
@click.option("--adopt", is_flag=True, help="Make a copy whose original is gone a sweep of its own.")
@json_option
def resume(directory: Path | None, detach: bool, takeover: bool, adopt: bool, as_json: bool) -> int:
    """Continue a sweep with the runs that are missing or may be retried.

    \b
    Examples:
      sweep resume
      sweep resume sweeps/first --detach
    """
    from sweep.library.launch import resume as resume_sweep

    path = chosen_sweep(directory).path
    with live_view() as show:
        launched = resume_sweep(path, takeover=takeover, adopt=adopt, detach=detach, on_step=show, note=note)
    return show_launched(launched, detach=detach, as_json=as_json)


@click.command(cls=SweepCommand)
@directory_argument
@json_option
def cancel(directory: Path | None, as_json: bool) -> int:
    """Stop a sweep: cancel its pilots, end their ranks, and record every attempt that started.

    \b
    Examples:
      sweep cancel
      sweep cancel sweeps/first
    """
    from sweep.library.launch import cancel as cancel_sweep

    cancelled = cancel_sweep(chosen_sweep(directory).path)
    left = list(cancelled.open_pilots)
    if as_json:
        reason = {} if cancelled.nothing is None else {"reason": cancelled.nothing}
        click.echo(json.dumps({"cancelled": not left and not reason, "pilots_open": left} | reason))
    elif cancelled.nothing is None and not left:
        note(f"cancelled; `sweep resume {cancelled.directory}` continues")
    elif left:
        note(f"still there: {', '.join(left)}; try again, or see `sweep status`")
    if cancelled.nothing is not None:
        note(f"nothing to cancel: {cancelled.nothing}")
    return 1 if left else 0


def note(text: str) -> None:
    """A line for the user, on stderr."""
    click.echo(text, err=True)


def _ask(about: Estimate) -> None:
    """Ask whether to spend it; Abort where the user does not want to."""
    click.confirm(f"{cost_text(about)}. Continue?", err=True, abort=True)


def cost_text(about: Estimate) -> str:
    """What a sweep is expected to spend, and on what."""
    unit = "rank-hours" if about.cpu else "GPU-hours"
    where = "on this machine" if about.pilots is None else f"on Slurm, up to {plural(about.pilots, 'pilot')} at once"
    expected = f"about {hours_text(about.gpu_hours)} {unit} in full"
    if about.expected_runs is not None and about.expected_gpu_hours is not None:
        spends = f"{hours_text(about.expected_gpu_hours)} {unit} for {plural(about.expected_runs, 'run')}"
        expected = f"{spends} expected by the strategy; {expected}"
    most = f"at most {hours_text(about.most_gpu_hours)} if each took its time limit"
    again = f"; then up to {plural(about.repeats, 'top configuration')} once more" if about.repeats else ""
    return f"{plural(about.runs, 'run')} {where}: {expected}, {most}{again}"


def _dry_run(
    grid: Grid, site: Site | None, directory: Path | None, executor: str | None, *, add: bool, as_json: bool
) -> int:
    """What would be submitted first, for each node count; or what would be added."""
    if add:
        from sweep.library.launch import added_by, directory_of
        from sweep.store.sweep import open_sweep

        sweep = open_sweep(directory_of(grid, directory))
        added = added_by(sweep, grid, site or grid.site, executor)
        if as_json:
            click.echo(json.dumps({"directory": str(sweep.directory.path)} | _added_document(added)))
        else:
            _show_added(added)
            note("nothing was written")
        return 0
    from sweep.library.launch import dry_run

    would = dry_run(grid, site, directory=directory, executor=executor)
    if as_json:
        click.echo(json.dumps(would))
        return 0
    note(f"{plural(would['runs'], 'run')}; nothing was written or submitted")
    for width, script in would["scripts"].items():
        nodes, at, group = width.partition("@")
        click.echo(f"# pilot of {plural(int(nodes), 'node')}{at}{group}\n{script}")
    return 0


def show_launched(launched: Launched, *, detach: bool, as_json: bool) -> int:
    """Print what a launch came to; 1 where no run is ok, or a detached launch could submit nothing."""
    document: dict[str, Any] = {"directory": str(launched.directory)}
    if launched.added is not None:
        document["added"] = _added_document(launched.added)
        _show_added(launched.added)
    if launched.holder is not None or detach:
        return _show_left(launched, document, as_json)
    if as_json:
        document |= {"runs": launched.runs, "counts": dict(launched.counts), "time": time.time()}
        click.echo(json.dumps(document | {"heatmap": str(launched.heatmap) if launched.heatmap is not None else None}))
    words = ", ".join(text for text, _ in counted(launched.counts))
    note(f"{launched.directory}: {plural(launched.runs, 'run')}: {words}")
    for outcome, message in list(launched.failures.items())[:FAILURES_SHOWN]:
        note(f"{outcome}: {brief(message) or 'no message'}")
    if launched.failures:
        where = launched.directory
        note(f"`sweep status {where}` names the runs, `sweep explain {where} RUN` says what to try")
    if text := unmeasured_text(launched.unmeasured, launched.directory):
        note(text)
    if launched.heatmap is not None:
        from sweep.cli.best import show_best

        show_best([launched.directory])
        note(f"heatmap: {launched.heatmap}")
    return 0 if launched.counts.get("ok") and not launched.cancelled else 1


def _show_left(launched: Launched, document: dict[str, Any], as_json: bool) -> int:
    """What goes on without this process."""
    path, progress = launched.directory, f"`sweep status {launched.directory}` shows its progress"
    if launched.holder is not None:
        document, text = document | {"launcher": launched.holder}, f"the running launcher ({launched.holder}) goes on"
    elif launched.background is not None:
        document |= {"launcher_pid": launched.background}
        text = f"launcher {launched.background} runs in the background"
    else:
        document |= {"jobs": list(launched.jobs)}
        text = f"{plural(len(launched.jobs), 'pilot')} submitted"
    click.echo(json.dumps(document)) if as_json else None
    if launched.holder is None and launched.background is None and not launched.jobs and not launched.ended:
        note(f"error: no pilot could be submitted; try again with `sweep resume {path} --detach`")
        return 1
    note(f"{text}; {progress}")
    return 0


def _added_document(added: Extension) -> dict[str, Any]:
    counts = {"runs": added.runs, "rejected": added.rejected, "planned_before": added.planned_before}
    return {**counts, "settings": dict(added.settings)}


def _show_added(added: Extension) -> None:
    note(f"{plural(added.runs, 'new run')}; {added.planned_before} of the grid's runs were planned before")
    for key, (old, new) in added.settings.items():
        note(f"{key}: {_words(new)} from now on, {_words(old)} until now")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item:g}" for key, item in value.items()) or "none"
    return "none" if value is None else str(value)
