"""An open sweep: its state, plans and search result, as of the journals' end."""

import dataclasses
import json
import time

import msgspec
import pytest

from sweep.cli.live import live_view
from sweep.outcomes import Outcome
from sweep.search.search import Search
from sweep.state.events import PilotEnded, PilotIntended, RerunRequested, SessionBegan
from sweep.store import lease, snapshot
from sweep.store import sweep as store
from sweep.store.journal import Journal
from sweep.store.sweep import Sweep, open_sweep
from tests.support.made_sweeps import made, pilot_wrote


def read(sweep) -> Sweep:
    """As another process reads it now."""
    return dataclasses.replace(sweep)


def out_of_memory(directory):
    """A sweep in which the strategy excludes runs, since one run ran out of memory. (sweep, that run)"""
    existing = made(directory)
    first = next(run for run in existing.runs if run.run().layout.micro_batch_size == 1)
    pilot_wrote(existing, "p0001", (first.run_id, 1, Outcome.OOM_CUDA))
    return existing, first


def counts(command, directory):
    out = command.shown("status", directory, "--json")
    return json.loads(out)["counts"]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(store, "WORTH_RUNS", 1)


def no_search(*_, **__):
    raise AssertionError("a search was made")


@pytest.mark.usefixtures("small")
def test_what_the_strategy_leaves_out_is_stored_and_needs_no_search(tmp_path, command, monkeypatch):
    existing, _ = out_of_memory(tmp_path / "s")
    found = counts(command, existing.directory.path)
    assert found["not_run_strategy"] > 0
    monkeypatch.setattr(Search, "__init__", no_search)
    assert counts(command, existing.directory.path) == found
    Journal(existing.directory.journal("launcher-0009")).append(SessionBegan(time=9.0))
    assert counts(command, existing.directory.path) == found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("after", ["rerun", "record", "strategy", "gpu", "plan"])
def test_a_stored_answer_that_is_out_of_date_is_not_used(tmp_path, command, monkeypatch, after):
    existing, first = out_of_memory(tmp_path / "s")
    directory = existing.directory
    before = counts(command, directory.path)
    if after == "rerun":
        wish = RerunRequested(time=time.time(), run_id=first.run_id, after=1)
        Journal(directory.journal("launcher-0009")).append(wish)
    elif after == "record":
        ruled_out = next(iter(read(existing).skipped()))
        pilot_wrote(existing, "p0002", (ruled_out, 1, Outcome.OK))
    elif after == "strategy":
        directory.grid.write_text(directory.grid.read_text().replace("strategy: guided", "strategy: exhaustive"))
    asked = open_sweep(directory.path)
    if after in ("gpu", "plan"):
        site = asked.site.model_copy(update={"gpu": "h100"})
        other = {"gpu": {"site": site}, "plan": {"runs": asked.runs[1:]}}[after]
        monkeypatch.setattr(Search, "__init__", no_search)
        assert read(asked).skipped(), "stored"
        with pytest.raises(AssertionError, match="a search was made"):
            read(dataclasses.replace(asked, **other)).skipped()
        return
    directory.snapshot.unlink()
    searched = read(asked).skipped()
    found = counts(command, directory.path)
    assert found != before
    assert found.get("not_run_strategy", 0) == len(searched)


@pytest.mark.usefixtures("small")
def test_while_a_pilot_is_open_no_answer_is_stored_and_the_launchers_of_a_minute_ago_is_used(
    tmp_path, command, monkeypatch
):
    existing, first = out_of_memory(tmp_path / "s")
    directory = existing.directory
    intent = PilotIntended(time=9.0, pilot="p0002", token="t-p0002", nodes=1, time_limit_s=60)
    launcher = Journal(directory.journal("launcher-0009"))
    launcher.append(intent)
    counts(command, directory.path)
    assert not directory.snapshot.exists()
    launchers = read(existing)
    launchers.store()
    skipped = launchers.skipped()
    launcher.append(RerunRequested(time=time.time(), run_id=first.run_id, after=1))
    with monkeypatch.context() as patched:
        patched.setattr(Search, "__init__", no_search)
        assert counts(command, directory.path)["not_run_strategy"] == len(skipped)
        stored = snapshot.load(directory)
        older = msgspec.structs.replace(stored.skipped, at=time.time() - 600)
        snapshot.save(directory, msgspec.structs.replace(stored, skipped=older))
        with pytest.raises(AssertionError, match="a search was made"):
            counts(command, directory.path)


def test_a_sweep_whose_pilot_ended_is_at_rest_unless_a_launcher_may_go_on(tmp_path):
    """As after `launch --detach` on Slurm: only a launcher would ask whether the job is gone."""
    sweep = made(tmp_path / "s")
    intent = PilotIntended(time=time.time(), pilot="p0001", token="t", nodes=2, time_limit_s=600)
    Journal(sweep.directory.journal("launcher-0009")).append(intent)
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    assert not read(sweep).at_rest
    Journal(sweep.directory.journal("pilot-p0001-end")).append(
        PilotEnded(time=time.time(), pilot="p0001", reason="done")
    )
    assert read(sweep).at_rest
    launcher = lease.take(sweep.directory)
    assert not read(sweep).at_rest
    launcher.release()
    assert read(sweep).at_rest


def test_the_last_line_of_a_watch_without_a_terminal_is_the_state_at_its_end(tmp_path, capsys):
    sweep = made(tmp_path / "s")
    watched = read(sweep)
    with live_view() as show:
        show(watched)
        pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
        watched.refresh()
        show(watched)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("4 runs: 4 waiting")
    assert last.startswith("4 runs: 4 ok")
