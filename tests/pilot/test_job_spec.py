"""A pilot's job spec: written by a launcher, read by its leader."""

from dataclasses import replace

from sweep.pilot.job_spec import JobSpec
from tests.support.pilot_parts import LIMITS, spec


def test_it_is_read_as_it_was_written(tmp_path):
    written = spec(srun=("--a", "b"), budget={"runs": 5, "share": 0.5}, limits=replace(LIMITS, steady_s=1.5))
    written.write(tmp_path)
    assert JobSpec.read(tmp_path) == written
