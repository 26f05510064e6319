"""The pilots' client of the shared file system hangs, the launcher's does not: healthy pilots are not cancelled.

The pilots see the sweep's directory through a FUSE file system (bindfs), whose process is stopped and continued; the
launcher, in a mount namespace of its own, sees the same directory without it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from sweep.state.events import PilotUnresponsive
from tests.support import driving
from tests.support.driving import SWEEP, running_attempt, wait_for

pytestmark = [pytest.mark.slurm, pytest.mark.long]
STALL_S = 75.0
"""longer than the 45 s after which pilots were cancelled before, and shorter than what NFS and Lustre may take"""


@contextlib.contextmanager
def through_fuse(real, seen):
    """`real`, as seen at `seen` through a file system whose process is returned."""
    for path in (real, seen):
        path.mkdir()
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not installed")
    server = subprocess.Popen(["bindfs", "-f", str(real), str(seen)])
    try:
        wait_for(lambda: os.path.ismount(seen), 20)
        yield server
    finally:
        server.send_signal(signal.SIGCONT)
        subprocess.run(["umount", "--lazy", str(seen)], check=False)
        server.terminate()
        server.wait(20)


def test_a_stall_of_the_pilots_file_system_ends_no_pilot(tmp_path, slurm_cluster):
    real, seen = tmp_path / "real", tmp_path / "seen"
    (tmp_path / "grid.yaml").write_text(driving.slow(1.0, nodes=2))
    words = ["launch", str(tmp_path / "grid.yaml"), "--dir", str(seen / "s"), "--executor", "slurm", "--yes"]
    with through_fuse(real, seen) as server:
        bound = ["unshare", "--mount", "sh", "-c", f'mount --bind {real} {seen} && exec "$@"', "sh", *SWEEP, *words]
        launcher = subprocess.Popen(bound, env=slurm_cluster.env, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        wait_for(lambda: running_attempt(real / "s"))
        server.send_signal(signal.SIGSTOP)
        time.sleep(STALL_S)
        assert launcher.poll() is None
        server.send_signal(signal.SIGCONT)
        assert launcher.wait(200) == 0
    assert driving.events_of(real / "s", PilotUnresponsive) == []
    assert len(driving.state_of(real / "s").pilots) == 1, "one job measured all"
    records = driving.assert_each_run_measured_once(real / "s")
    assert {record["outcome"] for record in records} == {"ok"}
