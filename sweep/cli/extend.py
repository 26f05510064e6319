"""`sweep extend`: another grid's runs for an existing sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import InputPath, SweepCommand
from sweep.cli.options import json_option, overrides_option, site_option
from sweep.errors import SweepError

if TYPE_CHECKING:
    from sweep.inputs.grid import Grid
    from sweep.inputs.site import Site
    from sweep.store.extend import Extension
    from sweep.store.sweep import Sweep


@click.command(cls=SweepCommand, short_help="Add another grid's runs to an existing sweep.")
@click.argument("directory", metavar="DIR", type=InputPath())
@click.argument("grid_file", metavar="GRID", type=InputPath())
@overrides_option
@site_option
@click.option("--dry-run", is_flag=True, help="Show what would be added; write nothing.")
@json_option
def extend(
    directory: Path, grid_file: Path, overrides: tuple[str, ...], site_given: str | None, dry_run: bool, as_json: bool
) -> int:
    """Add the runs of a grid that a sweep does not have yet. Runs planned before keep their names and records.

    A cell must have the same meaning in the grid: workload, sequence length, batch, seed, models of one name; and the
    site is the sweep's. Its strategy, budget and timeouts then apply to the whole sweep. A running launcher and
    pilots that start later measure the new runs; otherwise `sweep resume` does.

    \b
    Examples:
      sweep extend sweeps/first wider.yaml
      sweep extend sweeps/first grid.yaml -o nodes=[16,32] --dry-run
      sweep extend sweeps/first grid.yaml -o budget.node_hours=50
    """
    from sweep.cli.launch import check_runnable
    from sweep.inputs.load import load_grid
    from sweep.planning.build import build
    from sweep.store.directory import check_own, find_sweep
    from sweep.store.extend import extend as write
    from sweep.store.extend import extension, mistakes_of
    from sweep.store.sweep import open_sweep

    sweep = open_sweep(find_sweep(directory).path)
    check_own(sweep.directory)
    grid = load_grid(grid_file, overrides)
    if mistakes := mistakes_of(sweep, grid, _site(grid, site_given)):
        raise SweepError(mistakes)
    plan = build(grid, sweep.site)
    check_runnable(plan, grid, sweep.site, sweep.executor)
    added = extension(sweep, grid, plan)
    path = None if added.empty or dry_run else write(sweep.directory, grid, added)
    _print(sweep, added, path, dry_run=dry_run, as_json=as_json)
    return 0


def _site(grid: Grid, given: str | None) -> Site | None:
    """The site that the user names, if any."""
    from sweep.inputs.load import load_site

    return load_site(grid, given, None) if given is not None or grid.site is not None else None


def _print(sweep: Sweep, added: Extension, path: Path | None, *, dry_run: bool, as_json: bool) -> None:
    from sweep.store import lease

    holder = lease.holder(sweep.directory)
    if as_json:
        counts = {"runs": added.runs, "rejected": added.rejected, "planned_before": added.planned_before}
        settings = {key: [_plain(old), _plain(new)] for key, (old, new) in added.settings.items()}
        where = {"directory": str(sweep.directory.path), "plan": None if path is None else str(path)}
        click.echo(json.dumps({**where, **counts, "settings": settings, "launcher": holder}))
        return
    click.echo(f"{added.runs} new runs; {added.planned_before} of the grid's runs were planned before", err=True)
    for key, (old, new) in added.settings.items():
        click.echo(f"{key}: {_words(new)} from now on, {_words(old)} until now", err=True)
    if dry_run or path is None:
        click.echo("nothing was written" if dry_run else "nothing to add: nothing was written", err=True)
        return
    resume = f"`sweep resume {sweep.directory.path}`"
    text = f"{resume} continues with it"
    click.echo(f"{path}: {f'the running launcher ({holder}) or {text}' if holder else text}", err=True)


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def _words(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, dict):
        return ", ".join(f"{key} {item:g}" for key, item in plain.items()) or "none"
    return "none" if plain is None else str(plain)
