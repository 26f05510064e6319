"""Create a sweep directory from a grid and a site, and what a directory that a launch names must not hold."""

from __future__ import annotations

import contextlib
import json
import platform
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench_workloads.checks.reading import COMMAND_S, answer
from sweep.errors import Mistake, SweepError
from sweep.files import parquet_of, remove_empty
from sweep.inputs.grid import Grid
from sweep.inputs.site import Site
from sweep.inputs.yaml_lines import dump
from sweep.planning.runs import Plan
from sweep.planning.table import PARQUET
from sweep.redaction import secrets_shown
from sweep.store import lease
from sweep.store.directory import FOLDERS, SweepDir, make_directory, write_derived, write_once
from sweep.store.place import new_id, place_of
from sweep.store.sharing import group_id
from sweep.store.sweep import Sweep, open_sweep
from sweep.version import __version__

SECRETS_SHOWN = 3


def create(path: Path, grid: Grid, site: Site, plan: Plan, *, executor: str) -> Sweep:
    """Write a new sweep directory: input, plan and provenance, the provenance last. Returns the sweep.

    Raises SweepError if another launch is creating it right now. One that another has just created is returned as is.
    """
    directory = SweepDir(path.resolve())
    secret = any(map(secrets_shown, (grid.to_yaml(), grid.text, _site_yaml(site), *sys.argv)))
    mode, group = (0o700, None) if secret else _mode_of(site)
    made = directory.create_skeleton(mode, group)
    if secret or group is not None:
        make_directory(directory.path, mode, group)  # also one that was there
    held = None
    try:
        held = lease.take(directory)
        if not directory.provenance.is_file():
            # An interrupted creation's are replaced.
            write_derived(directory.grid, grid.to_yaml())
            write_derived(directory.site, _site_yaml(site))
            write_derived(directory.plan, parquet_of(plan.table, **PARQUET))
            stated = {"sweep_id": new_id(grid.name), "place": msgspec.to_builtins(place_of(directory))}
            stated |= _provenance(executor, grid.text)
            write_once(directory.provenance, json.dumps(stated, indent=1))
        held.release()
    except OSError:  # what this creation wrote is removed; directories only if it made them and they are empty
        if directory.path in made and not directory.provenance.is_file():
            files = [directory.grid, directory.site, directory.plan]
            files += [directory.leases / held.writer, directory.journal(held.writer)] if held is not None else []
            for file in files:
                with contextlib.suppress(OSError):
                    file.unlink()
            remove_empty(made)
        raise
    return open_sweep(directory.path)


def _mode_of(site: Site) -> tuple[int, int | None]:
    """The mode and the group of the directories of a sweep. Raises SweepError where the user has no such group."""
    mode = 0o777 & ~int(site.umask, 8)
    return (mode, None) if site.group is None else (mode | 0o2050, group_id(site.group))


def keep_private(directory: SweepDir, *more: str, created: Site | None = None) -> str | None:
    """Let no one else read a sweep whose inputs, or ``more`` of them, hold a secret. The note that says so, if others
    could read it until now; or, of one just ``created`` with that site, if without the secret they could.
    """
    found = [f"{file}: {line}" for file in directory.inputs() for line in secrets_shown(file.read_text())]
    found += [f"what is added: {line}" for text in more for line in secrets_shown(text)]
    shared = directory.path.stat().st_mode & 0o077 or (created is not None and _mode_of(created)[0] & 0o077)
    if not found or not shared:
        return None
    directory.path.chmod(0o700)
    shown = "; ".join(found[:SECRETS_SHOWN]) + "; …" * (len(found) > SECRETS_SHOWN)
    why = f"only you may read this sweep, whatever its umask or group, since it holds secrets ({shown})"
    return f"note: {why}; pilots inherit those that are set in the shell of `sweep launch` instead"


def check_vacant(directory: Path) -> None:
    """Raises SweepError where a directory holds something that is not a sweep; changes nothing."""
    unfinished = {"grid.yaml", "site.yaml", "plan.parquet", *FOLDERS}
    if directory.exists() and not directory.is_dir():
        raise SweepError(Mistake("is a file, not a directory", file=str(directory), remedy="name another with --dir"))
    strangers = {path.name for path in directory.iterdir()} - unfinished if directory.is_dir() else set()
    strangers = {name for name in strangers if not name.startswith(".") and not name.endswith(".new")}
    if strangers:
        fact = f"not a sweep directory, and not empty ({', '.join(sorted(strangers)[:3])})"
        raise SweepError(Mistake(fact, file=str(directory), remedy="name another with --dir"))


def check_same(sweep: Sweep, grid: Grid, executor: str, site: Site | None) -> None:
    """Raises SweepError where a directory holds another grid's sweep, or one of another executor or site.

    ``site``: as the user states it; None where it was auto-detected.
    """
    mistakes = mistakes_of_site(sweep, site)
    where = str(sweep.directory.path)
    if _on_any_site(grid) not in map(_on_any_site, sweep.grids):
        remedy = f"`sweep launch GRID --dir {where} --add` adds this one's runs to it; or name another with --dir"
        mistakes.append(Mistake("this directory holds the sweep of another grid", file=where, remedy=remedy))
    if sweep.executor != executor:
        fact = f"this sweep was started with the executor {sweep.executor}, not {executor}"
        mistakes.append(Mistake(fact, file=where, remedy=f"--executor {sweep.executor}, or another --dir"))
    if mistakes:
        raise SweepError(mistakes)


def mistakes_of_site(sweep: Sweep, site: Site | None) -> list[Mistake]:
    """How the user's site differs from the one that the sweep was started with."""
    if site is None:
        return []
    new, old = site.model_dump(), sweep.site.model_dump()
    other = [key for key in new if new[key] != old[key] and (key != "fabric" or new[key])]  # Slurm may have stated it
    if not other:
        return []
    changes = ", ".join(other)
    file = str(sweep.directory.site)
    remedy = f"omit the site; or change {file} and `sweep resume`; or start another sweep"
    return [
        Mistake(
            f"this sweep was started with another site: {changes} differ{'s' * (len(other) == 1)}",
            file=file,
            remedy=remedy,
        )
    ]


def _on_any_site(grid: Grid) -> str:
    return grid.model_copy(update={"site": None}).to_yaml()


def _site_yaml(site: Site) -> str:
    return dump(site.model_dump(mode="json", exclude_none=True))


def _provenance(executor: str, grid_text: str) -> Mapping[str, Any]:
    return {
        "executor": executor,
        "created": time.time(),
        "argv": sys.argv,
        "directory": str(Path.cwd()),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "sweep": __version__,
        "packages": {name: _version(name) for name in ("torch", "submitit", "pandas", "pyarrow", "numpy")},
        "slurm": _first_line(["sbatch", "--version"]),
        "git_commit": _first_line(["git", "rev-parse", "HEAD"]),
        "grid": grid_text,
    }


def _version(name: str) -> str | None:
    from importlib import metadata  # only a new sweep needs it

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _first_line(command: Sequence[str]) -> str | None:
    return answer(command, COMMAND_S).strip().partition("\n")[0] or None
