"""`sweep rerun` and `nodes`: what a user asks of a sweep while it runs or rests, in a journal of its own."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import SweepCommand
from sweep.cli.names import complete_run, json_option, name_option
from sweep.cli.sources import chosen_sweep, find_run
from sweep.errors import Mistake, SweepError, nearest, plural
from sweep.library.sources import readable
from sweep.outcomes import Outcome

if TYPE_CHECKING:
    from sweep.planning.runs import PlannedRun
    from sweep.state.state import RunState, SweepState
    from sweep.store.directory import SweepDir

SHOWN = 10
ACTIONS = ("exclude", "release")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@click.command(cls=SweepCommand)
@click.argument("words", metavar="[DIR] [RUN]...", nargs=-1, shell_complete=complete_run)
@click.option("--failed", is_flag=True, help="Runs that failed and are not retried any more.")
@name_option(
    "--outcome", "outcomes", kind="outcome", names=lambda: [str(o) for o in Outcome], multiple=True,
    help="Runs with this outcome. Repeatable.",
)  # fmt: skip
@click.option("--cell", "cells", metavar="MODEL:NODES", multiple=True, help="Runs of this cell. Repeatable.")
@json_option
def rerun(
    words: tuple[str, ...], failed: bool, outcomes: tuple[str, ...], cells: tuple[str, ...], as_json: bool
) -> int:
    """Request a further attempt of runs that have ended. Earlier attempts are kept; nothing is deleted.

    The new attempt counts once it is ok. RUN is any unique part of a run_id; the options select among the named runs,
    or among all runs if none is named. A running launcher or pilot starts the attempt; otherwise `sweep resume` does.

    \b
    Examples:
      sweep rerun sweeps/first llama-8b-n4-dp4-tp8
      sweep rerun sweeps/first --failed
      sweep rerun sweeps/first --outcome hang --outcome nccl_timeout
      sweep rerun sweeps/first --cell 8B:4 --failed
    """
    from sweep.state.events import RerunRequested
    from sweep.store.journal import write_request
    from sweep.store.place import check_own
    from sweep.store.snapshot import read_state
    from sweep.store.sweep import open_sweep

    given, names = _parse_runs(words)
    directory = chosen_sweep(given)
    check_own(directory)
    sweep = open_sweep(directory.path)
    known = {f"{run.model}:{run.nodes}" for run in sweep.runs}
    if unknown := [cell for cell in cells if cell not in known]:
        fact = "no cell {!r} in the plan"
        raise SweepError([Mistake(fact.format(c[:80]), path="--cell", remedy=nearest(c, known)) for c in unknown])
    sweep_state = read_state(directory)
    filtered = failed or outcomes or cells
    if not names and not filtered:
        remedy = "name runs, or give --failed, --outcome or --cell"
        raise SweepError(Mistake("no runs are selected", file=str(directory.path), remedy=remedy))
    meant = [
        run
        for run in _named(sweep.runs, names, directory)
        if (not cells or f"{run.model}:{run.nodes}" in cells)
        and _ended_as(sweep_state.runs.get(run.run_id), failed, outcomes)
    ]
    blocked = {run.run_id: why for run in meant if (why := _blocked(sweep_state.runs.get(run.run_id))) is not None}
    chosen = [run.run_id for run in meant if run.run_id not in blocked]
    if names and not filtered and blocked:
        raise SweepError([Mistake(f"{name} {why}", file=str(directory.path)) for name, why in blocked.items()])
    if chosen:
        now, last = time.time(), {run_id: max(sweep_state.runs[run_id].attempts) for run_id in chosen}
        wanted = [RerunRequested(time=now, run_id=run_id, after=after) for run_id, after in last.items()]
        write_request(directory, "rerun", wanted)
    _show_requested(directory, sweep_state, chosen, blocked, as_json)
    return 0


def _parse_runs(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """(directory, runs): the first word is a directory if one has that name, or if no run_id can contain it."""
    rest = list(words)
    if rest and ("/" in rest[0] or rest[0] in (".", "..") or readable(rest[0]).is_dir() or len(rest) > 1):
        directory = readable(rest[0])
        if directory.exists() or "/" in rest[0]:
            return directory, rest[1:]
    return None, rest


def _blocked(state: RunState | None) -> str | None:
    """Why a further attempt of the run need not or cannot be requested, as text; None where it can."""
    if state is None or state.last is None:
        return "has not begun: there is nothing to measure again"
    if state.last.outcome is None:
        return f"is being measured now (attempt {state.last.number})"
    if (number := state.next_attempt()) is not None:
        return f"already has a further attempt requested (attempt {number})"
    return None


def _ended_as(state: RunState | None, failed: bool, outcomes: Sequence[str]) -> bool:
    """Whether the attempt that counts has one of the outcomes, and failed where that is asked."""
    counting = (state.ok or state.last) if state is not None else None
    outcome = counting.outcome if counting is not None else None
    return not (failed and outcome in (None, Outcome.OK)) and (not outcomes or outcome in outcomes)


def _named(runs: Sequence[PlannedRun], names: Sequence[str], directory: SweepDir) -> list[PlannedRun]:
    """The runs that are named, in the plan's order; all if none is. Raises SweepError with every mistake."""
    if not names:
        return list(runs)
    known, named = [run.run_id for run in runs], set()
    mistakes: list[Mistake] = []
    for name in names:
        try:
            named.add(find_run(known, name, directory.path))
        except SweepError as error:
            mistakes += error.mistakes
    if mistakes:
        raise SweepError(mistakes)
    return [run for run in runs if run.run_id in named]


def _show_requested(
    directory: SweepDir, sweep_state: SweepState, chosen: Sequence[str], blocked: Mapping[str, str], as_json: bool
) -> None:
    from sweep.store import lease

    holder = lease.holder(directory)
    if as_json:
        asked = [{"run_id": run_id, "attempt": max(sweep_state.runs[run_id].attempts) + 1} for run_id in chosen]
        passed = [{"run_id": run_id, "reason": why} for run_id, why in blocked.items()]
        document = {"directory": str(directory.path), "asked": asked, "passed_over": passed, "launcher": holder}
        click.echo(json.dumps(document))
        return
    for run_id in chosen[:SHOWN]:
        click.echo(f"{run_id}: attempt {max(sweep_state.runs[run_id].attempts) + 1}", err=True)
    if len(chosen) > SHOWN:
        click.echo(f"… and {len(chosen) - SHOWN} more", err=True)
    if blocked:
        name, why = next(iter(blocked.items()))
        click.echo(f"{len(blocked)} skipped, such as {name}, which {why}", err=True)
    if not chosen:
        click.echo("no run will be measured again", err=True)
    elif holder is not None and not sweep_state.cancelled:
        way = f"the running launcher ({holder}) starts them, otherwise `sweep resume {directory.path}`"
        click.echo(f"{plural(len(chosen), 'run')}; {way}", err=True)
    else:
        click.echo(f"{plural(len(chosen), 'run')} to measure: `sweep resume {directory.path}`", err=True)


@click.command(cls=SweepCommand)
@click.argument("words", metavar="[DIR] [exclude|release NODE…]", nargs=-1)
@click.option("--reason", default="", help="Why a node is excluded; shown by `sweep status`.")
@json_option
def nodes(words: tuple[str, ...], reason: str, as_json: bool) -> int:
    """List the nodes of a sweep, and which are excluded and why; exclude or release nodes.

    A node is excluded after an Xid or its own failure, if its clean-up fails, if hangs point to it (the run was ok
    without it, or two different runs stopped there), and if it is repeatedly the slowest. `release` makes it
    available again. A queued pilot may still be allocated an excluded node, but does not use it.

    \b
    Examples:
      sweep nodes
      sweep nodes sweeps/first exclude node17 --reason "ECC errors"
      sweep nodes sweeps/first release node17
    """
    from sweep.state.events import NodeBad, NodeReleased
    from sweep.store.journal import write_request
    from sweep.store.snapshot import read_state

    given, action, names = _parse_nodes(words)
    directory, now = chosen_sweep(given), time.time()
    known = read_state(directory)
    if action == "exclude":
        why = f"by the user: {reason or 'no reason given'}"
        events = [NodeBad(time=now, node=name, reason=why).answering(known.latest) for name in names]
        write_request(directory, "nodes", events)
    elif action == "release":
        excluded = known.excluded_nodes
        if wrong := [name for name in names if name not in excluded]:
            listed = f"excluded: {', '.join(sorted(excluded))}" if excluded else "no node is excluded"
            where = str(directory.path)
            raise SweepError(
                [
                    Mistake(f"{name} is not excluded", file=where, remedy=nearest(name, excluded, listed))
                    for name in wrong
                ]
            )
        events = [NodeReleased(time=now, node=name).answering(known.latest) for name in names]
        write_request(directory, "nodes", events)
    elif reason:
        raise SweepError(Mistake("--reason goes with exclude", remedy="`sweep nodes DIR exclude NODE --reason TEXT`"))
    _show_nodes(read_state(directory) if action else known, as_json)
    return 0


def _parse_nodes(words: Sequence[str]) -> tuple[Path | None, str | None, list[str]]:
    """(directory, action, nodes). Raises SweepError with every mistake."""
    rest = list(words)
    directory = readable(rest.pop(0)) if rest and rest[0] not in ACTIONS else None
    if not rest:
        return directory, None, []
    action, names = rest[0], rest[1:]
    mistakes = []
    if action not in ACTIONS:
        mistakes.append(Mistake(f"unknown action {action!r}", remedy=nearest(action, ACTIONS)))
    if not names:
        mistakes.append(Mistake(f"{action}: no node is named", remedy=f"`sweep nodes DIR {action} NODE`"))
    mistakes += [
        Mistake(f"{name!r} is not a node name", remedy="separate names by blanks, as sinfo -N shows them")
        for name in names
        if not _NODE.fullmatch(name)
    ]
    if mistakes:
        raise SweepError(mistakes)
    return directory, action, names


def _show_nodes(sweep_state: SweepState, as_json: bool) -> None:
    excluded = sweep_state.excluded_nodes
    total, fine = Counter(dict.fromkeys(excluded, 0)), Counter[str]()
    for attempt in (attempt for run in sweep_state.runs.values() for attempt in run.attempts.values()):
        total.update(set(attempt.nodes))
        fine.update(set(attempt.nodes) if attempt.outcome == "ok" else ())
    rows = [
        {"node": node, "attempts": total[node], "ok": fine[node], "excluded": excluded.get(node)}
        for node in sorted(total)
    ]
    if as_json:
        click.echo(json.dumps({"nodes": rows}))
        return
    for row in rows:
        words = f"excluded: {row['excluded']}" if row["excluded"] else "in use"
        click.echo(f"{row['node']}: {row['ok']} of {row['attempts']} attempts ok; {words}")
    if not rows:
        click.echo("no attempt has begun, and no node is excluded", err=True)
