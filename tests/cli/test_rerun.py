"""`sweep rerun`: which runs are measured again, and that nothing is lost by it."""

from pathlib import Path

import pytest

from sweep.outcomes import Outcome
from sweep.state.tally import Tally
from sweep.store import lease
from sweep.store.sweep import Sweep
from tests.support.command_line import Command
from tests.support.driving import state_of
from tests.support.made_sweeps import made, pilot_wrote, tree


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """One run is ok, one failed for good, one is to be retried, one is going."""
    sweep = made(tmp_path / "s")
    assert len(sweep.runs) == 4
    ends = (Outcome.OK, Outcome.OOM_CUDA, Outcome.HANG, None)
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, end) for run, end in zip(sweep.runs, ends, strict=True)))
    return sweep


def asked(sweep: Sweep) -> dict[int, int | None]:
    """Place in the plan -> the attempt that may begin now, of those that may."""
    sweep_state = state_of(sweep.directory.path)
    numbers = (sweep_state.run(planned.run_id).next_attempt() for planned in sweep.runs)
    return {place: number for place, number in enumerate(numbers) if number is not None}


def test_a_named_run_gets_a_further_attempt_and_keeps_the_first(sweep: Sweep, command: Command) -> None:
    before = tree(sweep.directory.path)
    code, out, err = command("rerun", sweep.directory.path, sweep.runs[0].run_id[-10:])
    assert (code, out) == (0, "")
    assert f"to measure: `sweep resume {sweep.directory.path}`" in err
    assert asked(sweep) == {0: 2, 2: 2}
    added = {entry[0] for entry in set(tree(sweep.directory.path)) - set(before)}
    assert {name.split("-")[0] for name in added} == {"journal", "journal/rerun"}
    assert set(before) - set(tree(sweep.directory.path)) <= {entry for entry in before if entry[0] == "journal"}
    counts = Tally(sweep.runs, {}, serial=False).update(state_of(sweep.directory.path)).counts()
    assert counts == {"waiting": 2, "oom_cuda": 1, "running": 1}


@pytest.mark.parametrize(
    ("options", "places"),
    [
        (["--failed"], {1}),
        (["--outcome", "oom_cuda"], {1}),
        (["--outcome", "ok", "--outcome", "oom_cuda"], {0, 1}),
        (["--cell", "CELL"], {0, 1}),
        (["--cell", "CELL", "--failed"], {1}),
        (["--failed", "--outcome", "ok"], set()),
    ],
)
def test_filters_narrow_each_other_and_pass_over_what_needs_no_wish(
    sweep: Sweep, command: Command, options: list[str], places: set[int]
) -> None:
    cells = [f"{run.model}:{run.nodes}" for run in sweep.runs]
    given = [word for option in options for word in ([option] if option != "CELL" else [cells[0]])]
    if "CELL" in options:
        places = {place for place in places if cells[place] == cells[0]}
    document = command.json("rerun", sweep.directory.path, *given)
    assert [row["run_id"] for row in document["asked"]] == [sweep.runs[place].run_id for place in sorted(places)]
    assert {row["attempt"] for row in document["asked"]} <= {2}
    assert set(asked(sweep)) == places | {2}


def test_two_requests_make_one_attempt(sweep: Sweep, command: Command) -> None:
    command("rerun", sweep.directory.path, "--failed")
    before = tree(sweep.directory.path)
    code, _, err = command("rerun", sweep.directory.path, "--failed")
    assert code == 0
    assert "no run will be measured again" in err
    assert "already has a further attempt" in err
    assert tree(sweep.directory.path) == before


def test_a_running_launcher_is_named(sweep: Sweep, command: Command) -> None:
    lease.take(sweep.directory)
    _, _, err = command("rerun", sweep.directory.path, "--failed")
    assert "the running launcher (process " in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no runs are selected"]),
        (["--cell", "tiny-1M:3", "--cell", "8B:1"], ["no cell 'tiny-1M:3'", "tiny-1M:1", "no cell '8B:1'"]),
        (["gpt", "tiny"], ["no run has 'gpt'", "'tiny' is a part of 4 run_ids"]),
        (["RUN2"], ["already has a further attempt requested"]),
        (["RUN3", "RUN0"], ["is being measured now (attempt 1)"]),
    ],
)
def test_bad_input(sweep: Sweep, command: Command, arguments: list[str], words: list[str]) -> None:
    named = {f"RUN{place}": run.run_id for place, run in enumerate(sweep.runs)}
    where = sweep.directory.path
    err = command.refused("rerun", where, *(named.get(word, word) for word in arguments), within=where)
    for word in words:
        assert word in err


def test_a_run_that_has_not_begun_is_refused(tmp_path: Path, command: Command) -> None:
    sweep = made(tmp_path / "s")
    assert "has not begun" in command.refused("rerun", sweep.directory.path, sweep.runs[0].run_id)
