"""`sweep explain`: a log file or a run of a sweep, in words or as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sweep.cli.explain import explain
from sweep.errors import SweepError
from sweep.store import PROVENANCE, Journal, SweepDir


def call(*arguments: str) -> Result:
    return CliRunner().invoke(explain, arguments, catch_exceptions=False, standalone_mode=False)


def test_log_as_json_is_one_document(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_bytes(b"step 1\n\xff\xfe\nModuleNotFoundError: No module named 'apex'\n")
    document = json.loads(call("--log", str(log), "--json").stdout)
    assert list(document) == ["outcome", "evidence", "advice"]
    assert document["outcome"] == "import_error"
    assert "apex" in document["evidence"]


def test_healthy_log_in_words(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text("step 1 loss 2.0\nTraining finished\n")
    assert "no_failure" in call("--log", str(log)).stdout


def test_words_tell_of_nccl_too(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    log.write_text("".join(f"n{i}:1:1 [0] NCCL INFO Using network Socket\n" for i in (1, 2)))
    assert "TCP sockets" in call("--log", str(log)).stdout


def test_missing_file_and_missing_arguments_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="cannot read the log"):
        call("--log", str(tmp_path / "none.log"))
    with pytest.raises(SweepError, match="nothing to explain"):
        call()
    with pytest.raises(SweepError, match="exclude each other"):
        call(str(tmp_path), "--log", "x")


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDir:
    sweep = SweepDir(tmp_path / "s")
    sweep.create_skeleton()
    (sweep.path / PROVENANCE).write_text("{}")
    journal = Journal(sweep.journal("p1"))
    for attempt, (outcome, evidence) in enumerate([("node_fail", "n3 died"), ("ok", None)], start=1):
        record = {"run_id": "llama-aa", "attempt": attempt, "outcome": outcome, "evidence": evidence, "advice": None}
        journal.append({"event": "record", "time": 1.0, "record": record})
    journal.append({"event": "record", "time": 1.0, "record": {"run_id": "llama-bb", "attempt": 1, "outcome": "hang"}})
    journal.close()
    sweep.log("llama-aa", 1).write_text("the log\n")
    return sweep


def test_run_with_all_its_attempts(sweep: SweepDir) -> None:
    text = call(str(sweep.path), "llama-aa").stdout
    assert "llama-aa, attempt 1" in text
    assert "n3 died" in text
    assert str(sweep.log("llama-aa", 1)) in text
    assert "attempt 2" in text


def test_one_attempt_as_json(sweep: SweepDir) -> None:
    documents = json.loads(call(str(sweep.path), "llama-aa.1", "--json").stdout)
    assert [(d["attempt"], d["outcome"]) for d in documents] == [(1, "node_fail")]


def test_unknown_and_ambiguous_runs_are_mistakes(sweep: SweepDir) -> None:
    with pytest.raises(SweepError, match="no attempt of a run 'gpt'"):
        call(str(sweep.path), "gpt")
    with pytest.raises(SweepError, match="beginning of 2 runs"):
        call(str(sweep.path), "llama")
