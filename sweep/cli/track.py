"""`sweep track`: results to an experiment tracker, after a sweep or while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import SweepCommand
from sweep.cli.names import directory_argument, json_option, name_option
from sweep.cli.sources import chosen_sweep
from sweep.errors import SweepError, plural
from sweep.plugins import TRACKER

if TYPE_CHECKING:
    from sweep.store.sweep import Sweep


@click.command(cls=SweepCommand)
@directory_argument
@name_option("--to", "name", kind="tracker", names=TRACKER.names, required=True, help="The tracker.")
@click.option("--project", help="Default: the name of the grid.")
@json_option
def track(directory: Path | None, name: str, project: str | None, as_json: bool) -> int:
    """Send every finished run to a tracker: configuration, metrics and iterations, and the heatmap with the last one.

    Each run is sent once, while the sweep runs or after it. Weights & Biases works offline unless WANDB_MODE says
    otherwise. MLflow writes to a file in the sweep directory, or to MLFLOW_TRACKING_URI.

    \b
    Examples:
      sweep track --to mlflow
      sweep track sweeps/first --to wandb --project scaling
      WANDB_MODE=online sweep track sweeps/first --to wandb
    """
    from sweep.store.sweep import open_sweep
    from sweep.trackers.tracking import send

    sweep = open_sweep(chosen_sweep(directory).path)
    tracker = TRACKER.find(name)(project or sweep.grid.name, sweep.directory.path)
    sent = send(sweep.directory, sweep.sweep_id, tracker, picture=lambda: _picture(sweep))
    if as_json:
        click.echo(json.dumps({"tracker": name, "destination": tracker.destination, **sent._asdict()}))
    if sent.error is not None:
        click.echo(f"error: {sent.error}; {plural(sent.left, 'run')} left: try again", err=True)
        return 1
    click.echo(f"{sent.new} of {plural(sent.known, 'run')} new; {tracker.hint}", err=True)
    return 0


def _picture(sweep: Sweep) -> Path | None:
    """The heatmap as it is now, or None if nothing can be drawn yet."""
    from sweep.library.winners import draw_heatmap

    try:
        return draw_heatmap([sweep.directory.path])[0]
    except SweepError as error:
        click.echo(f"no heatmap for the tracker: {error}", err=True)
        return None
