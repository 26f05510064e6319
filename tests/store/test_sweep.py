"""A sweep directory that two make at the same moment."""

import subprocess

import msgspec
import psutil
import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.planning.build import build
from sweep.store.create import create
from sweep.store.directory import SweepDir
from sweep.store.lease import this_process
from tests.support.made_sweeps import GRID


def test_a_creation_is_refused_while_another_makes_the_directory(tmp_path):
    grid = parse_grid(GRID, "grid.yaml")
    directory = SweepDir(tmp_path / "s")
    directory.create_skeleton()
    other = subprocess.Popen(["sleep", "60"])
    began = psutil.Process(other.pid).create_time()
    holder = msgspec.structs.replace(this_process(), pid=other.pid, process_started=began)
    (directory.leases / "launcher-0001").write_bytes(msgspec.json.encode(holder))
    with pytest.raises(SweepError, match="another launcher holds"):
        create(directory.path, grid, grid.site, build(grid, grid.site), executor="local")
    assert not directory.provenance.exists()
    other.kill()
    other.wait()
    create(directory.path, grid, grid.site, build(grid, grid.site), executor="local")
