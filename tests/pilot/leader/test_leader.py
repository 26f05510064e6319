"""The leader's loop where a run cannot be begun, or the scheduler signals."""

import os

from sweep.pilot.job_spec import JobSpec
from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import GRID

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


def test_the_order_of_a_pilot_states_what_the_grid_does(tmp_path):
    driving.launched(tmp_path, GRID, "-o", "strategy=guided")
    (pilot,) = (tmp_path / "s" / "pilots").iterdir()
    assert JobSpec.read(pilot).strategy == "guided"
