"""A copy of a sweep's directory: every command that would continue it is refused, and changes nothing."""

import shutil

import pytest

from sweep.outcomes import Outcome
from tests.support.made_sweeps import GRID, made, pilot_wrote

CONTINUING = (
    "resume DIR",
    "resume DIR --takeover --detach",
    "cancel DIR",
    "rerun DIR --failed",
    "nodes DIR exclude n7",
    "launch grid.yaml --dir DIR --executor local --yes --detach",
    "launch grid.yaml -o iterations=9 --dir DIR --add --yes",
    "track DIR --to wandb",
)


@pytest.fixture
def copied(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    sweep = made(tmp_path / "s")
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OOM_CUDA))
    return shutil.copytree(tmp_path / "s", tmp_path / "copy")


@pytest.mark.parametrize("words", CONTINUING)
def test_no_command_continues_a_copy(command, copied, words):
    error = command.refused(*words.replace("DIR", str(copied)).split(), within=copied)
    assert f"is a copy of the sweep in {copied.parent / 's'}" in error
    assert f"If the original is gone: `sweep resume {copied} --adopt`" in error


def test_a_copy_can_be_read(command, copied):
    shutil.rmtree(copied.parent / "s")
    assert command.json("status", copied)["directory"] == str(copied)
    assert command("nodes", copied)[0] == 0
    assert command("collect", copied)[0] == 0
