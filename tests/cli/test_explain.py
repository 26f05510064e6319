"""`sweep explain`: a log file or a run of a sweep, as text or JSON."""

from pathlib import Path

import pytest

from sweep.errors import SweepError
from sweep.outcomes import Outcome
from sweep.store.journal import Journal
from sweep.store.sweep import Sweep
from tests.support.command_line import Called, Command
from tests.support.made_records import made_record, record_event
from tests.support.made_sweeps import made, pilot_wrote

explain = Called("sweep.cli.explain:explain")


def test_a_log_as_json_and_as_text_with_what_nccl_says(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"step 1\n\xff\xfe\nModuleNotFoundError: No module named 'apex'\n")
    document = explain.json("--log", str(log))
    assert list(document) == ["outcome", "evidence", "advice"]
    assert document["outcome"] == "import_error"
    assert "apex" in document["evidence"]
    log.write_text("".join(f"n{i}:1:1 [0] NCCL INFO Using network Socket\n" for i in (1, 2)) + "Training finished\n")
    shown = explain.shown("--log", str(log))
    assert "no_failure" in shown
    assert "TCP sockets" in shown


def test_missing_file_and_missing_arguments_are_mistakes(tmp_path: Path, command: Command) -> None:
    missing = command.refused("explain", "--log", tmp_path / "none.log")
    assert missing == f"error: {tmp_path}/none.log: no such file or directory (check the path)\n"
    with pytest.raises(SweepError, match="nothing to explain"):
        explain.shown()
    with pytest.raises(SweepError, match="exclude each other"):
        explain.shown(str(tmp_path), "--log", "x")


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Two attempts of the first run, one of the second; a third was called lost before its own word was read."""
    sweep = made(tmp_path / "s")
    first, second, third = (planned.run_id for planned in sweep.runs[:3])
    ends = (first, 1, Outcome.NODE_FAIL), (first, 2, Outcome.OK), (second, 1, Outcome.HANG), (third, 1, Outcome.OK)
    pilot_wrote(sweep, "p0001", *ends)
    lost = made_record(sweep.runs[2].run(), attempt=1, outcome=Outcome.LOST)
    journal = Journal(sweep.directory.journal("ended"))
    journal.append(record_event(lost, 1.0))
    journal.close()
    sweep.directory.log(first, 1).write_text("the log\n")
    return sweep


def test_run_with_all_its_attempts_each_by_its_own_record(sweep: Sweep) -> None:
    run_id = sweep.runs[0].run_id
    text = explain.shown(str(sweep.directory.path), run_id)
    assert f"{run_id}, attempt 1" in text
    assert "outcome:  node_fail" in text
    assert str(sweep.directory.log(run_id, 1)) in text
    assert "attempt 2" in text
    documents = explain.json(str(sweep.directory.path), sweep.runs[2].run_id)
    assert [(d["attempt"], d["outcome"]) for d in documents] == [(1, "ok")], "not as lost"


def test_one_attempt_as_json_by_a_part_of_its_name(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sweep logs` and `sweep rerun` take it."""
    words = f"{sweep.runs[0].run_id[-10:]}.1"
    documents = explain.json(str(sweep.directory.path), words)
    assert [(d["attempt"], d["outcome"]) for d in documents] == [(1, "node_fail")]
    monkeypatch.chdir(sweep.directory.path.parent)
    assert explain.json(words) == documents, "of the newest sweep here"


def test_attempts_that_have_not_ended_are_mistakes(sweep: Sweep) -> None:
    where, first, waiting = str(sweep.directory.path), sweep.runs[0].run_id, sweep.runs[3].run_id
    with pytest.raises(SweepError, match=f"no attempt {waiting} has ended"):
        explain.shown(where, waiting)
    with pytest.raises(SweepError, match=rf"no attempt {first}\.3 has ended in .*\(.*ended: {first}\.1, {first}\.2"):
        explain.shown(where, f"{first}.3")
