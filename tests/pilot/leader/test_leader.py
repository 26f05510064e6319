"""The leader's loop where a run cannot be begun, or the scheduler signals."""

import os

import pytest

from sweep.pilot.clock import PausingClock
from sweep.pilot.leader.leader import Leader
from sweep.pilot.order import PilotOrder
from sweep.search.search import Search
from tests.support import driving
from tests.support.made_sweeps import made
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import GRID, order

PLUG_IN = """
from sweep.contract import Workload
AXES = frozenset({"dp", "dtype", "micro_batch_size", "grad_accum"})
WORKLOAD = Workload(name="plugged", main="plugged:main", axes=AXES)
"""


def test_a_workload_that_the_node_does_not_have_is_an_import_error(tmp_path):
    """A plug-in of the login node alone."""
    plug_in, grid = tmp_path / "plug-in", tmp_path / "grid.yaml"
    info = plug_in / "plugged-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[sweep.workloads]\nplugged = plugged:WORKLOAD\n")
    (plug_in / "plugged.py").write_text(PLUG_IN)
    text = GRID.replace("workload: simulated", "workload: plugged").replace("params: {step_s: 0.02}\n", "")
    grid.write_text(text.replace("site: {", f"site: {{env: {{PYTHONPATH: {REPOSITORY}}}, "))
    words = ("launch", grid, "--dir", tmp_path / "s", "--executor", "local", "--yes")
    driving.run(*words, env={"PYTHONPATH": os.pathsep.join(map(str, (plug_in, REPOSITORY)))})
    records = driving.records_of(tmp_path / "s")
    assert [record["outcome"] for record in records] == ["import_error"] * 2
    assert all("plugged" in record["message"] for record in records)


@pytest.mark.parametrize("transfer", [True, False])
def test_the_leaders_search_transfers_as_its_order_states(tmp_path, monkeypatch, transfer):
    existing, seen = made(tmp_path / "s"), []
    of = Search.of
    monkeypatch.setattr(Search, "of", lambda *words, **named: seen.append(of(*words, **named)) or seen[-1])
    Leader(existing.directory, order(transfer=transfer), existing.runs, "1", PausingClock())
    assert [search.known.candidates.transfer for search in seen] == [transfer]


def test_the_order_of_a_pilot_states_what_the_grid_does(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)
    words = ("launch", tmp_path / "grid.yaml", "-o", "transfer=false", "-o", "strategy=guided")
    done = driving.run(*words, "--dir", tmp_path / "s", "--executor", "local", "--yes")
    assert done.returncode == 0, done.stderr
    (pilot,) = (tmp_path / "s" / "pilots").iterdir()
    found = PilotOrder.read(pilot)
    assert (found.transfer, found.strategy) == (False, "guided")
