"""A fold of the journals that is kept, with how far it had read: who looks next reads on from there.

Derived and disposable: it is written aside and renamed into place, nothing is lost with it, and one that does not fit
the journals or this version is passed over.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections import defaultdict
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from sweep.outcomes import Outcome
from sweep.state.quarantine import Charge, Ledger
from sweep.state.state import Attempt, PilotState, RunState, World
from sweep.store.directory import SweepDir, write_derived
from sweep.store.journal import JournalReader

WORTH_EVENTS = 5000
"""so many events beyond the kept ones make it worth to keep them anew"""
WORTH_RUNS = 2000
"""what was worked out of so many runs is worth to be kept"""
KEEP_S = 60.0
"""a launcher keeps the fold of a large sweep at least so often while runs are measured"""
OLD_S = 5 * KEEP_S
"""answers that were kept longer ago are not told while runs are measured"""
_ATTEMPT = tuple(field.name for field in dataclasses.fields(Attempt))
_NUMBER, _NODES, _OUTCOME = (_ATTEMPT.index(name) for name in ("number", "nodes", "outcome"))
_RUN = tuple(field.name for field in dataclasses.fields(RunState))[1:]
"""the fields of a run but for its attempts, which come first"""
_FORM = [
    "3",  # the way in which the fields are written
    *_ATTEMPT,
    *(field.name for kind in (RunState, PilotState, Ledger, Charge, World) for field in dataclasses.fields(kind)),
]
"""a snapshot by a version whose state has other fields is none"""
_OUTCOMES: dict[str | None, Outcome | None] = {None: None, **{str(outcome): outcome for outcome in Outcome}}


def read_world(sweep: SweepDir) -> tuple[World, JournalReader]:
    """The world as of now, and the reader of what follows. Keeps a snapshot where much had to be read."""
    world, reader = begin(sweep)
    fresh = reader.new_events()
    world.apply_all(fresh)
    if len(fresh) >= WORTH_EVENTS:
        keep(sweep, world, reader)
    return world, reader


def begin(sweep: SweepDir) -> tuple[World, JournalReader]:
    """The world of the snapshot, or an empty one, and the reader of what follows."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        kept = json.loads(sweep.snapshot.read_bytes())
        if kept["form"] == _FORM and _fits(sweep, kept["offsets"]):
            return _world(kept), JournalReader(sweep, kept["offsets"])
    return World(), JournalReader(sweep)


def keep(sweep: SweepDir, world: World, reader: JournalReader) -> None:
    """Write the snapshot. Best effort: whoever may only read the directory, or finds it full, goes without."""
    with contextlib.suppress(OSError):
        write_derived(sweep.snapshot, json.dumps(_values(world, reader.offsets), separators=(",", ":")))


def settle_for_older_answers(sweep: SweepDir, world: World) -> None:
    """Let what the launcher worked out some minutes ago do, for one look at a large sweep that is being measured.

    Older answers are those that the snapshot had: they are as old as the snapshot, and so are not kept themselves.
    """
    with contextlib.suppress(OSError):
        fresh = time.time() - sweep.snapshot.stat().st_mtime < OLD_S
        if fresh and any(pilot.open for pilot in world.pilots.values()):
            world.answers = world.older_answers | world.answers


def keep_answers(sweep: SweepDir, world: World, reader: JournalReader) -> None:
    """Keep what was worked out of a large sweep's runs, where it stands until somebody resumes: no pilot is open."""
    if len(world.runs) >= WORTH_RUNS and not any(pilot.open for pilot in world.pilots.values()):
        keep(sweep, world, reader)


def _fits(sweep: SweepDir, offsets: Mapping[str, int]) -> bool:
    sizes = {path.name: path.stat().st_size for path in sweep.journals()}
    return all(sizes.get(name, -1) >= offset for name, offset in offsets.items())


def _values(world: World, offsets: Mapping[str, int]) -> dict[str, Any]:
    """JSON values. Groups of nodes and run_ids, which recur often, are told once and by number elsewhere."""
    groups: dict[tuple[str, ...], int] = {}
    places = {run_id: place for place, run_id in enumerate(world.runs)}
    row = attrgetter(*_ATTEMPT)

    def attempt(given: Attempt) -> list[Any]:
        values = list(row(given))
        values[_NODES] = groups.setdefault(given.nodes, len(groups))
        return values

    runs = {
        run_id: [[getattr(state, name) for name in _RUN], *map(attempt, state.attempts.values())]
        for run_id, state in world.runs.items()
    }
    return {
        "form": _FORM,
        "offsets": dict(offsets),
        "runs": runs,
        "pilots": [dataclasses.asdict(pilot) for pilot in world.pilots.values()],
        "nodes": _ledger_values(world.nodes, groups, places),
        "cancelled": world.cancelled,
        "session_at": world.session_at,
        "delayed": [world.delayed, world.delayed_at],
        "touched": [places[run_id] for run_id in dict.fromkeys(reversed(world.touched))][::-1],
        "answers": world.answers,
        "groups": list(groups),
    }


def _ledger_values(ledger: Ledger, groups: dict[tuple[str, ...], int], places: Mapping[str, int]) -> dict[str, Any]:
    measured: dict[tuple[str, float], list[str]] = defaultdict(list)
    for node, runs in ledger.ok_in.items():
        for at in runs.items():
            measured[at].append(node)
    ok_in = [
        [places[run_id], time, groups.setdefault(tuple(nodes), len(groups))]
        for (run_id, time), nodes in measured.items()
    ]
    charges = [dataclasses.asdict(charge) for charge in ledger.charges]
    return {"charges": charges, "pardoned_at": ledger.pardoned_at, "slow_in": ledger.slow_in, "ok_in": ok_in}


def _world(kept: Mapping[str, Any]) -> World:
    groups = [tuple(group) for group in kept["groups"]]
    names = list(kept["runs"])
    pilots = [PilotState(**{**pilot, "node_names": tuple(pilot["node_names"])}) for pilot in kept["pilots"]]
    return World(
        runs={run_id: _run(values, attempts, groups) for run_id, (values, *attempts) in kept["runs"].items()},
        pilots={pilot.name: pilot for pilot in pilots},
        nodes=_ledger(kept["nodes"], groups, names),
        cancelled=kept["cancelled"],
        session_at=kept["session_at"],
        delayed=kept["delayed"][0],
        delayed_at=kept["delayed"][1],
        touched=[names[place] for place in kept["touched"]],
        answers=kept["answers"],
    )


def _ledger(kept: Mapping[str, Any], groups: list[tuple[str, ...]], names: list[str]) -> Ledger:
    charges = [Charge(**{**charge, "outcome": _OUTCOMES[charge["outcome"]]}) for charge in kept["charges"]]
    ok_in: dict[str, dict[str, float]] = defaultdict(dict)
    by_group: dict[int, dict[str, float]] = defaultdict(dict)
    for place, at, group in kept["ok_in"]:
        by_group[group][names[place]] = at
    for group, times in by_group.items():
        for node in groups[group]:
            ok_in[node].update(times)
    return Ledger(charges, kept["pardoned_at"], defaultdict(dict, kept["slow_in"]), ok_in)


def _run(values: list[Any], rows: list[Any], groups: list[tuple[str, ...]]) -> RunState:
    attempts = {}
    for row in rows:
        row[_NODES], row[_OUTCOME] = groups[row[_NODES]], _OUTCOMES[row[_OUTCOME]]
        attempts[row[_NUMBER]] = Attempt(*row)
    return RunState(attempts, *values)
