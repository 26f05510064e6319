"""What `sweep launch` asks before it spends anything."""

import io
import os
import re
import sys

import pytest

from sweep.executors.slurm_states import SQUEUE_FORMAT
from tests.support import driving
from tests.support.clients import made_client
from tests.support.command_line import Command
from tests.support.made_sweeps import GRID, tree

AGAIN = "3.0 if each took its time limit; then up to 2 top configurations once more. Continue?"


@pytest.mark.parametrize(("given", "runs", "spent", "full", "most"), [
    ((), "4 runs", "4 runs", "0.2", "3.0"),
    (("-o", "max_run_time=60"), "4 runs", "4 runs", "0.2", "0.2"),
    (("-o", "budget.runs=2"), "2 runs", "2 runs", "0.1", "2.0"),
    (("-o", "budget.share=0.25"), "1 run", "1 run", "0.05", "1.0"),
    (("-o", "budget.node_hours=0.05"), "4 runs", "2 runs", "0.1", "0.1"),
    (("-o", "remeasure=0.5"), "4 runs", "4 runs", "0.2", AGAIN),
    (("-o", "remeasure=0.1"), "4 runs", "4 runs", "0.2", AGAIN),
    (("-o", "remeasure=0"), "4 runs", "4 runs", "0.2", "3.0 if each took its time limit. Continue?"),
])  # fmt: skip
def test_the_question_states_the_estimate_then_the_limit(
    tmp_path, monkeypatch, command: Command, given, runs, spent, full, most
):
    """Rank-hours: 2 per node; 2 runs of 1 node and 2 of 2, each a minute, at most 15 unless the grid sets otherwise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.yaml").write_text(GRID)
    before = tree(tmp_path)
    answer = io.StringIO("n\n")
    monkeypatch.setattr(answer, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", answer)
    code, _, err = command("launch", "grid.yaml", "--executor", "local", *given)
    assert code == 130
    expected = f"{spent} expected by the strategy; about {full} rank-hours in full, at most {most}"
    assert f"{runs} on this machine: SPENT {expected}" in re.sub(r"0\.\d+ rank-hours for", "SPENT", err)
    assert err.rstrip().endswith("Continue? [y/N]:")
    assert tree(tmp_path) == before


def test_a_rejection_is_seen_though_the_caller_ignores_the_ends_of_its_children(tmp_path):
    """A child inherits that, and then the exit code of each of its own children reads as 0."""
    config = ("AccountingStorageType = accounting_storage/none", "ClusterName = c", "SLURM_VERSION = 23.11.4")
    made_client(tmp_path / "scontrol", f"printf '%s\\n' '{config[0]}' '{config[1]}' '{config[2]}'")
    made_client(tmp_path / "squeue", f"echo '{SQUEUE_FORMAT}'")
    made_client(tmp_path / "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1")
    (tmp_path / "grid.yaml").write_text(GRID)
    launch = driving.start(
        *("launch", tmp_path / "grid.yaml", "--dir", tmp_path / "s", "--executor", "slurm", "--yes"),
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        prefix=("bash", "-c", """trap '' CHLD; exec "$@" """, "bash"),
    )
    try:
        assert launch.wait(60) == 1
    finally:
        launch.kill()
        launch.wait()
