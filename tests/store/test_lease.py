"""One launcher at a time, and one tracker."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.planning.build import build
from sweep.state.events import SessionAlive, SessionBegan, SessionEnded
from sweep.store import lease
from sweep.store.create import create
from sweep.store.journal import Journal
from sweep.store.lease import QUIET_S, start_of, this_process
from tests.support.made_sweeps import GRID


def holder(sweep, epoch, **changes):
    process = msgspec.structs.replace(this_process(), **changes)
    (sweep.leases / f"launcher-{epoch:04d}").write_bytes(msgspec.json.encode(process))


def test_a_creation_is_refused_while_another_launcher_makes_the_directory(sweep):
    grid = parse_grid(GRID, "grid.yaml")
    holder(sweep, 1)
    with pytest.raises(SweepError, match="another launcher holds"):
        create(sweep.path, grid, grid.site, build(grid, grid.site), executor="local")
    assert not sweep.provenance.exists()
    holder(sweep, 1, pid=2**22 + 1)
    create(sweep.path, grid, grid.site, build(grid, grid.site), executor="local")


def test_takeover_raises_the_epoch_and_the_first_finds_out(sweep):
    first = lease.take(sweep)
    second = lease.take(sweep, takeover=True)
    assert second.epoch == first.epoch + 1
    second.check()
    with pytest.raises(lease.LeaseLostError):
        first.check()


@pytest.mark.parametrize("changes", [{"pid": 2**22 + 1}, {"pid": -5}, {"start": "another"}, {"boot_id": "another"}])
def test_a_dead_process_a_reused_pid_and_an_earlier_boot_hold_nothing(sweep, changes):
    holder(sweep, 1, **changes)
    assert lease.take(sweep).epoch == 2


def test_a_living_holder_holds_though_the_clock_was_set(sweep, tmp_path):
    """By which the boot, and with it the start of every process, is said to have been at another time."""
    lease.take(sweep)
    (tmp_path / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    stat = re.sub(r"btime (\d+)", lambda found: f"btime {int(found[1]) + 5}", Path("/proc/stat").read_text())
    (tmp_path / "stat").write_text(stat)
    ask = "import psutil, sys; psutil.PROCFS_PATH = sys.argv[2]; from sweep.store import directory, lease; "
    ask += "from pathlib import Path; print(lease.holder(directory.SweepDir(Path(sys.argv[1]))))"
    held = subprocess.run([sys.executable, "-c", ask, sweep.path, tmp_path], check=True, capture_output=True, text=True)
    assert held.stdout == f"process {os.getpid()} on this host\n"


def test_a_holder_that_ended_and_was_never_waited_for_holds_nothing(sweep):
    """As in a container whose first process waits for no orphans."""
    child = subprocess.Popen(["sleep", "60"])
    holder(sweep, 1, pid=child.pid, start=start_of(child.pid))
    assert lease.holder(sweep)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert lease.holder(sweep) is None
    child.wait()


def test_another_host_holds_while_its_journal_moves(sweep):
    holder(sweep, 1, host="elsewhere")
    Journal(sweep.journal("launcher-0001")).append(SessionBegan(time=time.time()))
    with pytest.raises(SweepError, match="elsewhere"):
        lease.take(sweep)
    old = time.time() - QUIET_S - 1
    os.utime(sweep.journal("launcher-0001"), (old, old))
    assert lease.take(sweep).epoch == 2


def test_a_session_that_ended_frees_the_lease(sweep):
    first = lease.take(sweep)
    Journal(sweep.journal(first.writer)).append(SessionEnded(time=time.time()))
    assert lease.take(sweep).epoch == 2


@pytest.mark.parametrize("content", [b"", b"rubbish", b"\xff\xfe", b'{"host":"\xff"}', b'{"host":"a"}', b"[]"])
@pytest.mark.parametrize("quiet", [True, False])
def test_the_launcher_of_a_damaged_lease_is_alive_while_its_journal_grows(sweep, content, quiet, capsys):
    """So that `sweep cancel` can stop the pilots of a sweep whose lease is unreadable."""
    (sweep.leases / "launcher-0001").write_bytes(content)
    Journal(sweep.journal("launcher-0001")).append(SessionAlive(time=time.time()))
    if quiet:
        old = time.time() - QUIET_S - 1
        os.utime(sweep.journal("launcher-0001"), (old, old))
        assert lease.take(sweep).epoch == 2
    else:
        with pytest.raises(SweepError, match="another launcher holds this sweep"):
            lease.take(sweep)
        assert lease.take(sweep, takeover=True).epoch == 2
    assert f"{sweep.leases / 'launcher-0001'}: the lease is damaged" in capsys.readouterr().err
