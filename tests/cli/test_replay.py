"""`sweep replay --strategy all`: every strategy on the same results, and the picture of their regret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.figures.regret import draw
from sweep.outcomes import Outcome
from sweep.plugins import strategy_names
from tests.support.command_line import Command
from tests.support.made_sweeps import made, pilot_wrote


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    found = made(tmp_path / "s")
    pilot_wrote(found, "p0001", *((run.run_id, 1, Outcome.OK) for run in found.runs))
    return found.directory.path


def test_all_strategies_are_compared_and_drawn(sweep: Path, command: Command) -> None:
    code, out, _ = command("replay", sweep, "--strategy", "all", "--json")
    assert code == 0
    document = json.loads(out)
    assert document.pop("picture") == str(sweep / "figures" / "regret.png")
    assert set(document) == set(strategy_names())
    assert all(found["overall"]["mean_regret"] == 0 for found in document.values())
    assert (sweep / "figures" / "regret.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = command("replay", sweep, "--strategy", "all", "--out", sweep.parent / "r.svg")
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == list(strategy_names())
    assert "<svg" in (sweep.parent / "r.svg").read_text()[:500]


def test_a_picture_without_all_strategies_has_no_effect(sweep: Path, command: Command) -> None:
    code, _, err = command("replay", sweep, "--out", "r.png")
    assert code == 2
    assert "--out: has no effect without --strategy all" in err


def test_the_lines_are_the_regret_after_each_run() -> None:
    figure = draw({"a": [1.0, 0.5, 0.0], "b": [1.0, 0.2]}, runs=2, cells=1)
    (axes,) = figure.axes
    steps = [line for line in axes.lines if len(line.get_xdata()) > 1]
    assert [list(line.get_ydata()) for line in steps] == [[100, 50, 0], [100, 20]]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a, 2", "b, 1"]


def test_without_transfer_each_cell_is_searched_by_its_own_runs(sweep: Path, command: Command) -> None:
    code, out, _ = command("replay", sweep, "--no-transfer", "--json")
    assert code == 0
    assert json.loads(out)["overall"]["mean_regret"] == 0
    code, _, err = command("replay", sweep, "--fit", "nodes == 1", "--predict", "nodes == 2", "--no-transfer")
    assert code == 2
    assert "--no-transfer: has no effect with --fit" in err
