"""What `sweep launch` asks before it spends anything."""

import io
import re
import sys

import pytest

from tests.support.command_line import Command
from tests.support.made_sweeps import GRID, tree


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (
            (),
            "4 runs on this machine: SPENT 4 runs expected by the strategy; about 0.2 rank-hours in full, at most 3.0",
        ),
        (
            ("-o", "max_run_time=60"),
            "4 runs on this machine: SPENT 4 runs expected by the strategy; about 0.2 rank-hours in full, at most 0.2",
        ),
        (
            ("-o", "budget.runs=2"),
            "2 runs on this machine: SPENT 2 runs expected by the strategy; about 0.1 rank-hours in full, at most 2.0",
        ),
        (
            ("-o", "budget.share=0.25"),
            "1 run on this machine: SPENT 1 run expected by the strategy; about 0.05 rank-hours in full, at most 1.0",
        ),
        (
            ("-o", "budget.node_hours=0.05"),
            "4 runs on this machine: SPENT 2 runs expected by the strategy; about 0.1 rank-hours in full, at most 0.1",
        ),
        (("-o", "remeasure=0.5"), "if each took its time limit; then up to 2 top configurations once more"),
        (("-o", "remeasure=0.1"), "if each took its time limit; then up to 2 top configurations once more"),
        (("-o", "remeasure=0"), "if each took its time limit. Continue?"),
    ],
)
def test_the_question_states_the_estimate_then_the_limit(tmp_path, monkeypatch, command: Command, given, reported):
    """Rank-hours: 2 per node; 2 runs of 1 node and 2 of 2, each a minute, at most 15 unless the grid sets otherwise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    before = tree(tmp_path)
    answer = io.StringIO("n\n")
    monkeypatch.setattr(answer, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answer)
    code, _, err = command("launch", "grid.yaml", "--executor", "local", *given)
    assert code == 130
    assert reported in re.sub(r"0\.\d+ rank-hours for", "SPENT", err)
    assert err.rstrip().endswith("Continue? [y/N]:")
    assert tree(tmp_path) == before
