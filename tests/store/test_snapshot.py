"""The stored state: equal to one rebuilt from the journals' beginning, ignored where it does not fit."""

import hashlib
import itertools

import msgspec
import pytest

from sweep.inputs.load import parse_grid
from sweep.outcomes import Outcome
from sweep.state.events import (
    CancelRequested,
    Event,
    NodeBad,
    NodeFit,
    NodeReleased,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    PilotWaits,
    RerunRequested,
    SessionBegan,
    SubmitDelayed,
    TriesRenewed,
)
from sweep.state.state import SweepState
from sweep.store import snapshot
from sweep.store.journal import JournalReader
from sweep.store.snapshot import read_state
from sweep.store.sweep import Sweep
from tests.support.launchers import written
from tests.support.made_events import recorded, started, state_of
from tests.support.made_sweeps import GRID

NODES = ("n1", "n2", "n3")


def events(runs=12) -> list[Event]:
    """A sweep's life with failures, retries, node reports, a slow node, a rerun and a cleared node."""
    clock = itertools.count(1.0)
    written: list[Event] = [
        SessionBegan(time=next(clock), epoch=1),
        PilotIntended(
            time=next(clock), pilot="p0001", token="t", nodes=3, time_limit_s=600, node_group="h100", cluster="alps"
        ),
        PilotWaits(time=next(clock), pilot="p0001", reason="Priority"),
        SubmitDelayed(time=next(clock), pilot="p0002", reason="QOSMaxSubmitJobPerUserLimit"),
        PilotStarted(time=next(clock), pilot="p0001", job_id="7", nodes=NODES, began_at=1.0),
    ]
    for number in range(runs):
        outcomes = (
            [Outcome.OK],
            [Outcome.OOM_CUDA],
            [Outcome.NODE_FAIL, Outcome.OK],
            [Outcome.HANG, Outcome.HANG],
        )[number % 4]
        for attempt, outcome in enumerate(outcomes, start=1):
            written += attempted(f"run-{number}", attempt, outcome, clock)
    return [
        *written,
        RerunRequested(time=next(clock), run_id="run-0", after=1),
        TriesRenewed(time=next(clock), after={"run-3": 2}),
        NodeBad(time=next(clock), node="n1", reason="smells", pilot="p0001"),
        NodeReleased(time=next(clock), node="n2"),
        NodeFit(time=next(clock), node="n3", pilot="p0001"),
        PilotAlive(time=next(clock), pilot="p0001"),
        PilotEnded(time=next(clock), pilot="p0001", reason="done"),
        CancelRequested(time=next(clock)),
        PilotGone(time=next(clock), pilot="p0001", word="COMPLETED", reason="NonZeroExitCode", ended_at=5.0),
    ]


def attempted(run_id, attempt, outcome, clock) -> list[Event]:
    facts = {"message": f"{outcome} é", "node_names": NODES, "ended_at": 5.0, "peak_memory_bytes": 2.0**33}
    facts |= {"rate": 7.5, "stopped": "slow"} if outcome is Outcome.OK else {}
    accused = ("n2",) if outcome in (Outcome.HANG, Outcome.NODE_FAIL) else ()
    begun, clock_of_end = started(run_id, next(clock), attempt, nodes=NODES), next(clock)
    return [begun, recorded(run_id, outcome, clock_of_end, attempt, accused=accused, slow="n3", **facts)]


def opened_in(directory):
    grid = parse_grid(GRID, "grid.yaml")
    return Sweep(directory, grid, grid.site, "local", "s", ())


def rebuilt(sweep):
    return state_of(*JournalReader(sweep).new_events())


def equal_but_for_touches(a, b):
    """Equal in all but how often a run was touched."""
    return {**vars(a), "touched": None} == {**vars(b), "touched": None} and set(a.touched) == set(b.touched)


@pytest.mark.parametrize("known", [0, 1, 5, 17, 30, 100])
def test_the_stored_state_and_what_follows_equal_a_state_rebuilt_from_the_beginning(sweep, known):
    life = events()
    journal = written(sweep, "launcher-0001", *life[:known])
    opened = opened_in(sweep)
    opened.store()
    for event in life[known:]:
        journal.append(event)
    assert len(snapshot.load(sweep).offsets) == min(1, known)
    assert JournalReader(sweep, snapshot.load(sweep).offsets).new_events() == life[known:]
    later = opened_in(sweep)
    assert equal_but_for_touches(later.sweep_state, rebuilt(sweep))
    assert later.sweep_state.excluded_nodes == rebuilt(sweep).excluded_nodes


def sealed(content):
    """A snapshot's file, from its content."""
    return hashlib.sha256(content).digest() + content


@pytest.mark.parametrize("damage", ["cut", "one bit", "form", "longer", "gone", "not a map", "of version 0.1", "empty"])
def test_one_that_does_not_fit_is_ignored(sweep, damage):
    written(sweep, "launcher-0001", *events())
    opened = opened_in(sweep)
    opened.store()
    stored = msgspec.msgpack.decode(sweep.snapshot.read_bytes()[32:])
    if damage == "form":
        stored["form"] = stored["form"][1:]
    elif damage == "longer":
        stored["offsets"]["launcher-0001.jsonl"] += 1
    elif damage == "gone":
        stored["offsets"]["launcher-0009.jsonl"] = 5
    data = sealed(msgspec.msgpack.encode(stored))
    other = {
        "cut": data[: len(data) // 2],
        "one bit": data.replace(b"n1", b"n3", 1),
        "not a map": sealed(b"\x90"),
        "of version 0.1": b'{"form": ["3"], "offsets": {}}',
        "empty": b"",
    }
    assert other["one bit"] != data
    sweep.snapshot.write_bytes(other.get(damage, data))
    assert snapshot.load(sweep) == snapshot.Snapshot(sweep_state=SweepState())
    assert equal_but_for_touches(read_state(sweep), rebuilt(sweep))


def test_much_that_was_read_is_stored_and_little_is_not(sweep, monkeypatch):
    journal = written(sweep, "launcher-0001", *events())
    read_state(sweep)
    assert not sweep.snapshot.exists()
    monkeypatch.setattr(snapshot, "WORTH_EVENTS", 10)
    read_state(sweep)
    stored = sweep.snapshot.read_bytes()
    journal.append(CancelRequested(time=99.0))
    assert read_state(sweep).cancelled
    assert sweep.snapshot.read_bytes() == stored
    assert sweep.snapshot.stat().st_mode & 0o077 == 0


def test_a_reader_that_may_not_write_does_without(sweep, monkeypatch):
    written(sweep, "launcher-0001", *events())

    def refuse(path, data):
        raise PermissionError(13, "denied", str(path))

    monkeypatch.setattr(snapshot, "WORTH_EVENTS", 1)
    monkeypatch.setattr(snapshot, "write_derived", refuse)
    assert equal_but_for_touches(read_state(sweep), rebuilt(sweep))
