"""What `sweep launch` asks before it spends anything."""

import io
import sys

import pytest

from tests.support.made_sweeps import GRID, Command, tree


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ((), "4 runs on this machine, up to 3 GPU-hours"),
        (("-o", "max_run_time=60"), "4 runs on this machine, up to 0.2 GPU-hours"),
        (("-o", "budget.runs=2"), "2 runs on this machine, up to 2 GPU-hours"),
        (("-o", "budget.share=0.25"), "1 run on this machine, up to 1 GPU-hours"),
        (("-o", "budget.node_hours=0.25"), "4 runs on this machine, up to 0.5 GPU-hours"),
    ],
)
def test_the_question_states_the_highest_cost(tmp_path, monkeypatch, command: Command, given, reported):
    """GPU-hours: 2 per node; 2 runs of 1 node and 2 of 2, each 15 minutes unless the grid sets otherwise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    before = tree(tmp_path)
    answer = io.StringIO("n\n")
    monkeypatch.setattr(answer, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answer)
    code, _, err = command("launch", "grid.yaml", "--executor", "local", *given)
    assert code == 130
    assert f"{reported} if each took its limit. Continue?" in err
    assert tree(tmp_path) == before
