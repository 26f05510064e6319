"""A pilot's order: written by a launcher, read by its leader."""

from dataclasses import replace

from sweep.pilot.order import PilotOrder
from tests.support.pilot_parts import LIMITS, order


def test_it_is_read_as_it_was_written(tmp_path):
    written = order(srun=("--a", "b"), budget={"runs": 5, "share": 0.5}, limits=replace(LIMITS, steady_s=1.5))
    written.write(tmp_path)
    assert PilotOrder.read(tmp_path) == written
