"""Messages between agent and fork server, and the fork server pool."""

import asyncio
import contextlib
import json
import mmap
import os
from pathlib import Path

import pytest

from sweep.contract import Layout, Place
from sweep.pilot.agent import fork_servers
from sweep.pilot.agent.fork_messages import ForkRequest
from sweep.pilot.agent.fork_servers import ForkServerError, ForkServerPool
from tests.support.ranks.harness import a_run

PLACE = {"rank": 1, "world_size": 2, "local_rank": 1, "local_world_size": 2, "node_rank": 0, "master_addr": "n1"}
PLACE |= {"master_port": 5, "seed": 3}


async def ended(server, folder, main, env=None):
    """The exit of a rank that was forked there, with its files in the folder."""
    end = asyncio.get_running_loop().create_future()
    place = Place(**PLACE, scratch_dir=str(folder))
    request = ForkRequest(main=main, run=a_run(Layout()).canonical_json(), places=(place,), env=env or {})
    fds = [os.open(folder / name, os.O_WRONLY | os.O_CREAT) for name in ("log", "progress")]
    await server.fork(request, fds, end.set_result)
    return await asyncio.wait_for(end, 60)


@contextlib.asynccontextmanager
async def a_pool():
    pool = ForkServerPool("n1")
    try:
        yield pool
    finally:
        for fork_server in pool.fork_servers:
            fork_server.close()


async def test_a_fork_server_is_shared_by_what_it_imports_and_the_least_recently_used_is_closed(monkeypatch):
    monkeypatch.setattr(fork_servers, "MAX_FORK_SERVERS", 2)
    async with a_pool() as pool:
        first = await pool.get([], {})
        assert await pool.get([], {}) is first
        second = await pool.get([], {"A": "b"})
        assert await pool.get([], {}) is first
        third = await pool.get([], {"A": "c"})
        assert [fork_server.pid for fork_server in pool.fork_servers] == [first.pid, third.pid]
        assert await pool.get([], {"A": "b"}) is not second


async def test_a_fork_server_that_died_is_replaced():
    async with a_pool() as pool:
        first = await pool.get([], {})
        first.died()
        with pytest.raises(ForkServerError):
            await first.fork(ForkRequest(main="m:f", run="{}", places=(), env={}), [], lambda status: None)
        second = await pool.get([], {})
        assert (second is not first, second.dead) == (True, False)


async def test_modules_that_cannot_be_preloaded_are_imported_by_the_ranks(capfd):
    async with a_pool() as pool:
        assert not (await pool.get(["no_such_module_anywhere"], {})).dead
    assert "ranks start without preload" in capfd.readouterr().err


ASKS = """
import pathlib, tempfile
tempfile.gettempdir()
def main(run, progress):
    (pathlib.Path(run.place.scratch_dir) / "found").write_text(tempfile.gettempdir())
"""


async def test_ranks_use_their_own_tmpdir_though_an_import_asked_for_the_fork_servers(tmp_path):
    """As importing torch does; tempfile stores the answer."""
    (tmp_path / "asks_for_tempdir.py").write_text(ASKS)
    own = tmp_path / "own"
    own.mkdir()
    async with a_pool() as pool:
        server = await pool.get(["asks_for_tempdir"], {"PYTHONPATH": str(tmp_path)})
        code = await ended(server, tmp_path, "asks_for_tempdir:main", {"TMPDIR": str(own)})
    assert code == 0, (tmp_path / "log").read_text()
    assert (tmp_path / "found").read_text() == str(own)


REPORTS = """
import time
from sweep.contract import Measurement
time.sleep(0.05)
def main(run, progress):
    progress.measured(Measurement(step_times_s=[1.0], phases_s={"build": 2.0}))
"""


async def test_a_rank_reports_how_long_the_imports_took_that_it_was_forked_after(tmp_path):
    (tmp_path / "slow_to_import.py").write_text(REPORTS)
    async with a_pool() as pool:
        server = await pool.get(["slow_to_import"], {"PYTHONPATH": str(tmp_path)})
        assert await ended(server, tmp_path, "slow_to_import:main") == 0, (tmp_path / "log").read_text()
    phases_s = json.loads((tmp_path / "progress").read_text())["phases_s"]
    assert phases_s.pop("imports") >= 0.05
    assert phases_s == {"build": 2.0}


def kernel_collapses_pages():
    with mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(bytes(8 << 20))
        try:
            memory.madvise(25)
        except OSError:
            return False
    return True


@pytest.mark.skipif(not kernel_collapses_pages(), reason="before Linux 6.1, or without transparent huge pages")
async def test_from_the_second_attempt_on_ranks_are_forked_from_huge_pages_so_that_forks_and_exits_are_short(tmp_path):
    (tmp_path / "is_large.py").write_text("DATA = [bytes(1000) for _ in range(32_000)]\nmain = print\n")
    huge_kib = []
    async with a_pool() as pool:
        server = await pool.get(["is_large"], {"PYTHONPATH": str(tmp_path)})
        for _ in range(2):
            await ended(server, tmp_path, "is_large:main")
            lines = Path(f"/proc/{server.pid}/smaps_rollup").read_text().splitlines()
            huge_kib += [int(line.split()[1]) for line in lines if line.startswith("AnonHugePages")]
    assert huge_kib[0] < 1_000
    assert huge_kib[1] > 24_000
