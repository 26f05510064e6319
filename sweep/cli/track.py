"""`sweep track`: results to an experiment tracker, after a sweep or alongside it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import SweepCommand
from sweep.cli.names import name_option
from sweep.cli.options import directory_argument, json_option
from sweep.cli.progress_text import plural
from sweep.cli.sources import chosen_sweep
from sweep.errors import SweepError
from sweep.plugins import TRACKER

if TYPE_CHECKING:
    from sweep.store.sweep import Sweep
    from sweep.trackers.tracking import Tracking

POLL_S = 2.0
AGAIN_S = (10.0, 300.0)
"""first delay before a retry; it doubles each time, up to the second value"""
ORPHAN_S = 600
"""how long a tracker may run after its launcher was killed"""


@click.command(cls=SweepCommand)
@directory_argument
@name_option("--to", "name", kind="tracker", names=TRACKER.names, required=True, help="The tracker.")
@click.option("--project", help="Default: the name of the grid.")
@click.option("--follow", is_flag=True, hidden=True, help="Continue until standard input ends (for `sweep launch`).")
@json_option
def track(directory: Path | None, name: str, project: str | None, follow: bool, as_json: bool) -> int:
    """Send every finished run to a tracker: configuration, metrics and iterations, and the heatmap with the last one.

    Each run is sent once. Weights & Biases works offline unless WANDB_MODE says otherwise. MLflow
    writes to a file in the sweep directory, or to MLFLOW_TRACKING_URI.

    \b
    Examples:
      sweep track --to mlflow
      sweep track sweeps/first --to wandb --project scaling
      WANDB_MODE=online sweep track sweeps/first --to wandb
    """
    from sweep.store.sweep import open_sweep
    from sweep.trackers.tracker import TrackerError
    from sweep.trackers.tracking import Tracking

    sweep = open_sweep(chosen_sweep(directory).path)
    tracker = TRACKER.find(name)(project or sweep.grid.name, sweep.directory.path)
    with contextlib.closing(Tracking(sweep.directory, sweep.sweep_id, tracker)) as tracking:
        if follow:
            os.nice(10)
            _follow(tracking)
            signal.alarm(ORPHAN_S)
        tracking.poll()
        known, waiting = tracking.known, tracking.waiting
        problem = None
        try:
            tracking.write_waiting(picture=lambda: _picture(sweep))
        except TrackerError as error:
            problem = str(error)
    new = waiting - tracking.waiting
    if as_json:
        document = {"tracker": name, "destination": tracker.destination, "known": known, "new": new}
        click.echo(json.dumps({**document, "left": tracking.waiting, "error": problem}))
    if problem is not None:
        click.echo(f"error: {problem}; {plural(tracking.waiting, 'run')} left: try again", err=True)
        return 1
    click.echo(f"{new} of {plural(known, 'run')} new; {tracker.hint}", err=True)
    return 0


def _picture(sweep: Sweep) -> Path | None:
    """The heatmap as it is now, or None if nothing can be drawn yet."""
    from sweep.library.heatmap import draw_heatmap

    try:
        return draw_heatmap([sweep.directory.path])[0]
    except SweepError as error:
        click.echo(f"no heatmap for the tracker: {error}", err=True)
        return None


def _follow(tracking: Tracking) -> None:
    """Write runs as they end, but hold back one: the last is written with the heatmap, after standard input ended."""
    from sweep.trackers.tracker import TrackerError

    again_at, again_s = 0.0, AGAIN_S[0]
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        tracking.poll()
        if time.monotonic() < again_at:
            continue
        try:
            tracking.write_waiting(keep=1)
            again_s = AGAIN_S[0]
        except TrackerError as error:
            click.echo(f"{error}; trying again in {again_s:.0f} s", err=True)
            again_at, again_s = time.monotonic() + again_s, min(2 * again_s, AGAIN_S[1])
