"""The kept fold over the journals: equal to a fold anew, passed over where it does not fit, never needed."""

import dataclasses
import itertools
import json
import os
import time

import pytest

from sweep.outcomes import Outcome
from sweep.search.search import BY_STRATEGY, Search
from sweep.state.events import (
    AttemptStarted,
    CancelRequested,
    Event,
    NodeBad,
    NodeCleared,
    PilotAlive,
    PilotEnded,
    PilotGone,
    PilotIntended,
    PilotStarted,
    Recorded,
    RecordFacts,
    RerunRequested,
    SessionBegan,
    SubmitDelayed,
)
from sweep.state.quarantine import Charge, Ledger
from sweep.state.state import Attempt, PilotState, RunState, World
from sweep.store import snapshot
from sweep.store.directory import SweepDir
from sweep.store.journal import Journal, JournalReader
from sweep.store.sweep import open_sweep
from tests.support.made_sweeps import made, pilot_wrote

NODES = ("n1", "n2", "n3")


def events(runs=12) -> list[Event]:
    """A sweep's life with failures, retries, accusations, a slow node, a rerun and a node pardoned."""
    clock = itertools.count(1.0)
    said: list[Event] = [
        SessionBegan(time=next(clock), epoch=1),
        PilotIntended(time=next(clock), pilot="p0001", token="t-p0001", nodes=3, time_limit_s=600),
        SubmitDelayed(time=next(clock), pilot="p0002", reason="QOSMaxSubmitJobPerUserLimit"),
        PilotStarted(time=next(clock), pilot="p0001", job_id="7", nodes=NODES),
    ]
    for number in range(runs):
        outcomes = (
            [Outcome.OK],
            [Outcome.OOM_CUDA],
            [Outcome.NODE_FAIL, Outcome.OK],
            [Outcome.HANG, Outcome.HANG],
        )[number % 4]
        for attempt, outcome in enumerate(outcomes, start=1):
            said += attempted(f"run-{number}", attempt, outcome, clock)
    return [
        *said,
        RerunRequested(time=next(clock), run_id="run-0", after=1),
        NodeBad(time=next(clock), node="n1", reason="smells"),
        NodeCleared(time=next(clock), node="n2"),
        PilotAlive(time=next(clock), pilot="p0001"),
        PilotEnded(time=next(clock), pilot="p0001", reason="done"),
        CancelRequested(time=next(clock)),
        PilotGone(time=next(clock), pilot="p0001", word="COMPLETED"),
    ]


def attempted(run_id, attempt, outcome, clock) -> list[Event]:
    facts = RecordFacts(
        run_id=run_id,
        attempt=attempt,
        pilot="p0001",
        outcome=outcome,
        message=f"{outcome} é",
        node_names=NODES,
        ended_at=5.0,
        tokens_per_second_per_gpu=7.5 if outcome is Outcome.OK else None,
        peak_memory_bytes=2.0**33,
    )
    accused = ("n2",) if outcome in (Outcome.HANG, Outcome.NODE_FAIL) else ()
    return [
        AttemptStarted(time=next(clock), run_id=run_id, attempt=attempt, pilot="p0001", nodes=NODES),
        Recorded(time=next(clock), record=facts, accused=accused, slow_node="n3"),
    ]


@pytest.fixture
def sweep(tmp_path):
    directory = SweepDir(tmp_path / "s")
    directory.create_skeleton()
    return directory


def write(sweep, writer, said):
    journal = Journal(sweep.journal(writer))
    for event in said:
        journal.append(event)
    return journal


def anew(sweep):
    world = World()
    world.apply_all(JournalReader(sweep).new_events())
    return world


def alike(a, b):
    """Equal in all but how often a run was touched."""
    return {**vars(a), "touched": None} == {**vars(b), "touched": None} and set(a.touched) == set(b.touched)


@pytest.mark.parametrize("known", [0, 1, 5, 17, 30, 100])
def test_the_kept_world_and_what_follows_equal_a_fold_anew(sweep, known):
    said = events()
    journal = write(sweep, "launcher-0001", said[:known])
    world, reader = snapshot.begin(sweep)
    world.apply_all(reader.new_events())
    snapshot.keep(sweep, world, reader)
    for event in said[known:]:
        journal.append(event)
    kept, reader = snapshot.begin(sweep)
    assert len(reader.offsets) == min(1, known)
    kept.apply_all(reader.new_events())
    assert alike(kept, anew(sweep))
    assert kept.bad_nodes == anew(sweep).bad_nodes


def test_the_order_of_what_happened_last_is_kept(sweep):
    write(sweep, "launcher-0001", events())
    world, reader = snapshot.read_world(sweep)
    snapshot.keep(sweep, world, reader)
    last = snapshot.begin(sweep)[0].touched
    assert last == sorted(set(world.touched), key=lambda run: max(i for i, t in enumerate(world.touched) if t == run))


@pytest.mark.parametrize("damage", ["cut", "form", "longer", "gone", "not json"])
def test_one_that_does_not_fit_is_passed_over(sweep, damage):
    write(sweep, "launcher-0001", events())
    world, reader = snapshot.read_world(sweep)
    snapshot.keep(sweep, world, reader)
    kept = json.loads(sweep.snapshot.read_text())
    if damage == "form":
        kept["form"] = kept["form"][1:]
    elif damage == "longer":
        kept["offsets"]["launcher-0001.jsonl"] += 1
    elif damage == "gone":
        kept["offsets"]["launcher-0009.jsonl"] = 5
    text = json.dumps(kept)
    sweep.snapshot.write_text({"cut": text[: len(text) // 2], "not json": "[]"}.get(damage, text))
    found, reader = snapshot.begin(sweep)
    assert found == World()
    assert reader.offsets == {}
    assert alike(snapshot.read_world(sweep)[0], anew(sweep))


def test_much_that_was_read_is_kept_and_little_is_not(sweep, monkeypatch):
    journal = write(sweep, "launcher-0001", events())
    snapshot.read_world(sweep)
    assert not sweep.snapshot.exists()
    monkeypatch.setattr(snapshot, "WORTH_EVENTS", 10)
    snapshot.read_world(sweep)
    written = sweep.snapshot.read_bytes()
    journal.append(CancelRequested(time=99.0))
    assert snapshot.read_world(sweep)[0].cancelled
    assert sweep.snapshot.read_bytes() == written
    assert sweep.snapshot.stat().st_mode & 0o077 == 0


def test_who_may_not_write_goes_without(sweep, monkeypatch):
    write(sweep, "launcher-0001", events())

    def refuse(path, data):
        raise PermissionError(13, "denied", str(path))

    monkeypatch.setattr(snapshot, "WORTH_EVENTS", 1)
    monkeypatch.setattr(snapshot, "write_derived", refuse)
    assert alike(snapshot.read_world(sweep)[0], anew(sweep))


def full():
    """A world in which nothing is as it is by default."""
    world = World()
    world.apply_all(events())
    world.pilots["p0001"].elsewhere = True
    world.answers["why"] = {"run-1": BY_STRATEGY}
    return world


def parts(world):
    """Every value of the state, by its kind."""
    attempts = [attempt for state in world.runs.values() for attempt in state.attempts.values()]
    return {
        World: [world],
        RunState: list(world.runs.values()),
        Attempt: attempts,
        PilotState: list(world.pilots.values()),
        Ledger: [world.nodes],
        Charge: world.nodes.charges,
    }


def default(field):
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


@pytest.mark.parametrize("kind", [World, RunState, Attempt, PilotState, Ledger, Charge])
def test_no_field_of_the_state_is_forgotten(sweep, kind):
    world = full()
    world.touched = list(dict.fromkeys(world.touched))
    snapshot.keep(sweep, world, JournalReader(sweep))
    kept = snapshot.begin(sweep)[0]
    for field in dataclasses.fields(kind):
        if field.name == "older_answers":
            continue  # how old they are is told by the age of the snapshot that had them as answers
        said = [getattr(value, field.name) for value in parts(world)[kind]]
        assert any(value != default(field) for value in said), f"{field.name} is at its default: say it in full()"
        assert [getattr(value, field.name) for value in parts(kept)[kind]] == said, field.name


def out_of_memory(directory):
    """A sweep of which the strategy leaves something out, since one run ran out of memory. (sweep, that run)"""
    standing = made(directory)
    first = next(run for run in standing.runs if run.run().layout.micro_batch_size == 1)
    pilot_wrote(standing, "p0001", (first.run_id, 1, Outcome.OOM_CUDA))
    return standing, first


def counts(command, directory):
    code, out, _ = command("status", directory, "--json")
    assert code == 0
    return json.loads(out)["counts"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(snapshot, "WORTH_RUNS", 1)


def no_search(*_):
    raise AssertionError("a search was made")


@pytest.mark.usefixtures("small")
def test_what_the_strategy_leaves_out_is_kept_and_needs_no_search(tmp_path, command, monkeypatch):
    standing, _ = out_of_memory(tmp_path / "s")
    found = counts(command, standing.directory.path)
    assert found["not_run_strategy"] > 0
    monkeypatch.setattr(Search, "of", no_search)
    assert counts(command, standing.directory.path) == found
    Journal(standing.directory.journal("launcher-0009")).append(SessionBegan(time=9.0))
    assert counts(command, standing.directory.path) == found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("after", ["rerun", "record", "strategy", "gpu", "plan"])
def test_a_kept_answer_that_is_out_of_date_is_not_believed(tmp_path, command, monkeypatch, after):
    standing, first = out_of_memory(tmp_path / "s")
    directory = standing.directory
    before = counts(command, directory.path)
    if after == "rerun":
        wish = RerunRequested(time=time.time(), run_id=first.run_id, after=1)
        Journal(directory.journal("launcher-0009")).append(wish)
    elif after == "record":
        ruled_out = next(iter(open_sweep(directory.path).left_out(snapshot.read_world(directory)[0])))
        pilot_wrote(standing, "p0002", (ruled_out, 1, Outcome.OK))
    elif after == "strategy":
        directory.grid.write_text(directory.grid.read_text().replace("strategy: prune", "strategy: exhaustive"))
    asked = open_sweep(directory.path)
    if after in ("gpu", "plan"):
        world = snapshot.begin(directory)[0]
        site = asked.site.model_copy(update={"gpu": "h100"})
        other = {"gpu": {"site": site}, "plan": {"runs": asked.runs[1:]}}[after]
        monkeypatch.setattr(Search, "of", no_search)
        assert asked.left_out(world), "kept"
        with pytest.raises(AssertionError, match="a search was made"):
            dataclasses.replace(asked, **other).left_out(world)
        return
    anew_found = asked.search.left_out(anew(directory))
    found = counts(command, directory.path)
    assert found != before
    assert found.get("not_run_strategy", 0) == len(anew_found)


@pytest.mark.usefixtures("small")
def test_the_answer_is_not_kept_while_a_pilot_is_open(tmp_path, command):
    standing, _ = out_of_memory(tmp_path / "s")
    intent = PilotIntended(time=9.0, pilot="p0002", token="t-p0002", nodes=1, time_limit_s=60)
    Journal(standing.directory.journal("launcher-0009")).append(intent)
    counts(command, standing.directory.path)
    assert not standing.directory.snapshot.exists()


@pytest.mark.usefixtures("small")
def test_while_a_pilot_is_open_the_launchers_answer_of_a_minute_ago_will_do(tmp_path, command, monkeypatch):
    standing, first = out_of_memory(tmp_path / "s")
    directory = standing.directory
    intent = PilotIntended(time=9.0, pilot="p0002", token="t-p0002", nodes=1, time_limit_s=60)
    launcher = Journal(directory.journal("launcher-0009"))
    launcher.append(intent)
    world, reader = snapshot.read_world(directory)
    left_out = standing.left_out(world)
    snapshot.keep(directory, world, reader)
    launcher.append(RerunRequested(time=time.time(), run_id=first.run_id, after=1))
    with monkeypatch.context() as patched:
        patched.setattr(Search, "of", no_search)
        assert counts(command, directory.path)["not_run_strategy"] == len(left_out)
        os.utime(directory.snapshot, (1.0, 1.0))
        with pytest.raises(AssertionError, match="a search was made"):
            counts(command, directory.path)
