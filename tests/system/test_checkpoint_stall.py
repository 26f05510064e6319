"""A checkpoint on a file system whose writing is limited stops training by as much as it must, or less."""

import shutil
from pathlib import Path

import pytest

from benchmarks.checkpoint_stall import measured

MIB_PER_S = 16.0


@pytest.mark.long
def test_sync_stalls_by_bytes_over_bandwidth_and_async_less(tmp_path: Path):
    if shutil.which("bindfs") is None or not Path("/dev/fuse").exists():
        pytest.skip("needs bindfs and /dev/fuse")
    sync, copied, pinned = measured(tmp_path, MIB_PER_S)
    expected = sync["checkpoint_bytes"] / (MIB_PER_S * 2**20)
    assert sync["outcome"] == "ok"
    assert sync["checkpoint_stall_s"] == pytest.approx(expected, rel=0.2)
    for row in (copied, pinned):
        assert row["checkpoint_stall_s"] < expected / 2
        assert row["checkpoint_durable_s"] > 0.8 * expected
