"""A sweep directory that two make at the same moment."""

import json
import os
import subprocess
import time

import psutil
import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.plan.build import build
from sweep.store.directory import SweepDir, boot_id
from sweep.store.sweep import create
from tests.support.made_sweeps import GRID


def test_a_creation_is_refused_while_another_makes_the_directory(tmp_path):
    grid = parse_grid(GRID, "grid.yaml")
    directory = SweepDir(tmp_path / "s")
    directory.create_skeleton()
    other = subprocess.Popen(["sleep", "60"])
    holder = {"host": os.uname().nodename, "pid": other.pid, "boot_id": boot_id(), "time": time.time()}
    holder["process_started"] = psutil.Process(other.pid).create_time()
    (directory.launchers / "1").write_text(json.dumps(holder))
    with pytest.raises(SweepError, match="another launcher holds"):
        create(directory.path, grid, grid.site, build(grid, grid.site), executor="local", grid_text=GRID)
    assert not directory.provenance.exists()
    other.kill()
    other.wait()
    create(directory.path, grid, grid.site, build(grid, grid.site), executor="local", grid_text=GRID)
