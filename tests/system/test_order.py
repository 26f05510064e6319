"""The order of runs on the real launcher is the documented one: every cell's most promising first."""

from pathlib import Path

import pytest

from sweep.state.events import AttemptStarted
from sweep.store.sweep import open_sweep
from tests.support import driving
from tests.support.made_sweeps import GRID


@pytest.mark.parametrize("strategy", [pytest.param("exhaustive", marks=pytest.mark.long), "prune"])
def test_one_machine_measures_in_the_plans_order_over_several_widths(tmp_path: Path, strategy: str) -> None:
    text = GRID.replace("[tiny-1M]", "[tiny-1M, tiny-4M]").replace("nodes: [1, 2]", "nodes: [1, 2, 4]")
    directory = tmp_path / "s"
    driving.launched(tmp_path, text + f"strategy: {strategy}\nparams: {{step_s: 0.001}}\n")
    planned = open_sweep(directory).runs
    began = [event.run_id for event in driving.events_of(directory, AttemptStarted)]
    assert began == [run.run_id for run in planned]
    cells = [(run.model, run.nodes) for run in planned]
    assert len(set(cells[:6])) == 6, "the first of every cell before the second of any"
