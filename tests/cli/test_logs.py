"""`sweep logs`: the stored output of attempts and pilots, found by parts of names."""

from pathlib import Path

import pytest

from sweep.outcomes import Outcome
from sweep.store.sweep import Sweep
from tests.support.command_line import Command
from tests.support.made_sweeps import made, pilot_wrote


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """The first run failed and is measured again, the second was lost, the others have not begun."""
    sweep = made(tmp_path / "s")
    first, second, *_ = (planned.run_id for planned in sweep.runs)
    pilot_wrote(sweep, "p0001", (first, 1, Outcome.HANG), (second, 1, Outcome.LOST), (first, 2, None))
    sweep.directory.log(first, 1).write_text("rank 1 waits\n")
    (sweep.directory.pilot("p0001") / "stderr").write_text("srun: one\nsrun: two")
    (sweep.directory.pilot("p0001") / "rendezvous").write_text("host 1 key")
    return sweep


def test_an_attempts_output_by_any_part_of_its_name(sweep: Sweep, command: Command) -> None:
    first = sweep.runs[0].run_id
    path = sweep.directory.path
    for words in (f"{first}.1", f"{first[-12:]}.1"):
        code, out, err = command("logs", path, words)
        assert (code, out) == (0, "rank 1 waits\n")
        assert f"{first}, attempt 1 (also attempt 2): hang" in err
        assert str(sweep.directory.log(first, 1)) in err
        document = command.json("logs", path, words)
        assert (document["run_id"], document["attempt"], document["attempts"]) == (first, 1, [1, 2])
        assert (document["outcome"], document["text"], document["pilot"]) == ("hang", "rank 1 waits\n", "p0001")


def test_the_last_attempt_is_meant_where_none_is_named_and_it_is_still_going(sweep: Sweep, command: Command) -> None:
    code, out, err = command("logs", sweep.directory.path, sweep.runs[0].run_id)
    assert (code, out) == (1, "")
    assert "attempt 2 (also attempt 1): running: it is measured now in pilot p0001" in err


def test_an_attempt_without_output_is_reported(sweep: Sweep, command: Command) -> None:
    code, out, err = command("logs", sweep.directory.path, sweep.runs[1].run_id)
    assert (code, out) == (1, "")
    assert "lost: none of its output was stored" in err
    assert "--pilot p0001" in err


def test_candidates_are_listed_with_what_became_of_them(sweep: Sweep, command: Command) -> None:
    err = command.refused("logs", sweep.directory.path, "tiny", within=sweep.directory.path)
    assert f"'tiny' is a part of {len(sweep.runs)} run_ids" in err
    reported = {line.split()[0]: line.split(" ", 3)[3] for line in err.splitlines()[1:]}
    assert list(reported) == [planned.run_id for planned in sweep.runs]
    assert list(reported.values())[:3] == ["(2 attempts, running)", "(1 attempt, lost)", "(not begun)"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tiny-1N-n2"], ["no run has 'tiny-1N-n2'", "no directory has that name", "nearest: tiny-1M-n2"]),
        ([""], ["no run has ''"]),
        ([], ["no run is named"]),
        (["FIRST.3"], ["has no attempt 3", "it has 1, 2"]),
        (["LAST"], ["no attempt of", "has begun"]),
        (["--pilot", "p1"], ["no pilot 'p1'", "there are p0001"]),
        (["--pilot", ".."], ["no pilot '..'"]),
        (["FIRST", "--pilot", "p0001"], ["--pilot excludes RUN"]),
    ],
)
def test_bad_input(sweep: Sweep, command: Command, arguments: list[str], words: list[str]) -> None:
    named = {"FIRST": sweep.runs[0].run_id, "LAST": sweep.runs[-1].run_id}
    given = [named.get(str(word), str(word).replace("FIRST", named["FIRST"])) for word in arguments]
    err = command.refused("logs", *([sweep.directory.path] if arguments else []), *given, within=sweep.directory.path)
    for word in words:
        assert word in err


def test_a_pilots_own_output(sweep: Sweep, command: Command) -> None:
    code, out, err = command("logs", sweep.directory.path, "--pilot", "p0001")
    assert (code, out) == (0, "srun: one\nsrun: two\n")
    assert "stderr: 2 lines" in err
    document = command.json("logs", sweep.directory.path, "--pilot", "p0001")
    assert document["files"] == {str(sweep.directory.pilot("p0001") / "stderr"): "srun: one\nsrun: two"}
