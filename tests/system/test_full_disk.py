"""A file system that fills with a sweep's own journals and logs, on one machine: nothing measured is lost."""

import subprocess
import time

import pytest

from tests.support import driving
from tests.support.mounts import full_mount

__all__ = ["full_mount"]

KEYS = {"models": ["1B"], "sequence_length": 128, "global_batch": 8192, "micro_batch_size": [1, 2, 4, 8, 16]}
KEYS |= {"zero": [0, 1], "tp": [1, 2], "iterations": 3, "params": {"step_s": 0.01}, "repeats": 2}
GRID = driving.simulated({"max_local_ranks": 2, "pilot_time": "4h"}, **KEYS, strategy="exhaustive")
SMALL = "320k"
"""room for about four fifths of these runs"""


@pytest.mark.long
def test_a_sweep_waits_where_its_disk_is_full_and_goes_on_once_space_is_freed(full_mount, tmp_path) -> None:
    small = full_mount(SMALL)
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID)
    launched = driving.start("launch", grid, "--dir", small / "s", "--executor", "local", "--yes")
    try:
        deadline, shown = time.monotonic() + 120, ""
        while f"the file system of {small}/s is full" not in shown and time.monotonic() < deadline:
            assert launched.poll() is None, "it was to fill the disk"
            time.sleep(2)
            shown = " ".join(driving.run("status", small / "s").stdout.split()) if (small / "s").exists() else ""
        assert "nothing more is recorded until space is freed" in shown
        subprocess.run(["mount", "-o", "remount,size=8m", str(small)], check=True)
        assert launched.wait(timeout=120) == 0
    finally:
        launched.kill()
    records = driving.assert_each_run_measured_once(small / "s")
    assert {record["outcome"] for record in records} == {"ok"}
    assert len(records) == 30
