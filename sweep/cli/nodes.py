"""`sweep nodes`: the sweep's nodes, which are excluded and why; exclude or release one."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sweep.cli.command import SweepCommand
from sweep.cli.names import json_option
from sweep.cli.sources import chosen_sweep
from sweep.errors import Mistake, SweepError, nearest
from sweep.library.sources import readable

if TYPE_CHECKING:
    from sweep.state.state import SweepState

ACTIONS = ("exclude", "release")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


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

    given, action, names = _parse(words)
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
    _show(read_state(directory) if action else known, as_json)
    return 0


def _parse(words: Sequence[str]) -> tuple[Path | None, str | None, list[str]]:
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


def _show(sweep_state: SweepState, as_json: bool) -> None:
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
