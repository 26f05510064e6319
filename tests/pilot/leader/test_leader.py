"""The leader's loop where a run cannot be begun."""

from tests.support import driving
from tests.support.paths import REPOSITORY

PLUG_IN = """
from sweep.contract import Workload
AXES = frozenset({"dp", "dtype", "micro_batch_size", "grad_accum"})
WORKLOAD = Workload(name="plugged", main="plugged:main", axes=AXES)
"""


def test_a_workload_that_the_node_does_not_have_is_an_import_error(tmp_path):
    """A plug-in of the login node alone."""
    driving.plug_in(tmp_path / "p", "plugged", "plugged:WORKLOAD", PLUG_IN)
    grid = driving.simulated({"env": {"PYTHONPATH": str(REPOSITORY)}}, workload="plugged", micro_batch_size=[1, 2])
    driving.launch(tmp_path, grid, env={"PYTHONPATH": f"{tmp_path / 'p'}:{REPOSITORY}"})
    records = driving.records_of(tmp_path / "s")
    assert [record["outcome"] for record in records] == ["import_error"] * 2
    assert all("plugged" in record["message"] for record in records)


def test_a_log_that_cannot_be_written_does_not_end_the_leader(existing):
    directory = existing.directory.path
    (directory / "logs").rmdir()
    (directory / "logs").touch()
    driving.succeeds("resume", directory)
    assert len(driving.assert_each_run_measured_once(directory)) == 2
    assert "cannot write the log of" in "".join(path.read_text() for path in directory.glob("pilots/*/stderr"))
