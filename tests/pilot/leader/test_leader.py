"""The leader: its start, runs that cannot be begun, a file system or a node that does not answer."""

import asyncio
import os
import signal
import time
from types import SimpleNamespace

from sweep.pilot.leader import preflight as module
from sweep.pilot.leader.attempts import Attempts
from sweep.pilot.leader.files import Files
from sweep.pilot.leader.link import Link
from sweep.pilot.leader.preflight import Preflight
from sweep.search.search import Choice
from sweep.state.events import PilotEnded, SessionAlive
from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import GRID, Mute, spec

SLOW_IMPORT = """
import os, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "sweep.pilot.leader.leader" and not os.path.exists({seen!r}):
            open({seen!r}, "w").close()
            deadline = time.monotonic() + 60
            while not os.path.exists({going_on!r}) and time.monotonic() < deadline:
                time.sleep(0.02)

sys.meta_path.insert(0, Slow())
"""


def test_while_the_leader_imports_its_agents_start_and_a_signal_ends_the_pilot_in_order(tmp_path):
    seen, going_on, path, directory = (tmp_path / name for name in ("seen", "going-on", "path", "s"))
    path.mkdir()
    (path / "sitecustomize.py").write_text(SLOW_IMPORT.format(seen=str(seen), going_on=str(going_on)))
    launcher = driving.launching(tmp_path, GRID, env={"PYTHONPATH": os.pathsep.join(map(str, (path, REPOSITORY)))})
    driving.wait_for(seen.exists)
    driving.wait_for(lambda: any("sweep.pilot.agent" in line for line in driving.marked_processes(directory)))
    (pid,) = driving.leader_pids(directory)
    os.kill(pid, signal.SIGTERM)
    going_on.touch()
    assert launcher.wait(120) == 0
    ended = {event.pilot: event.reason for event in driving.events_of(directory, PilotEnded)}
    assert ended["p0001"] == "received SIGTERM"
    driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory) == []


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


async def test_the_loop_goes_on_while_the_file_system_hangs(existing):
    files = Files(existing.directory, "pilot-p0001")
    hung = asyncio.ensure_future(files.do(lambda: time.sleep(1.0)))
    written = asyncio.ensure_future(files.append(SessionAlive(time=1.0)))
    ticks = 0
    while not hung.done():
        await asyncio.sleep(0.02)
        ticks += 1
    await written
    files.close()
    assert ticks > 20, "pings must go out meanwhile"
    assert len(driving.events_of(existing.directory.path, SessionAlive)) == 1, "what came after the hang is in order"


async def test_a_clock_that_is_set_back_meanwhile_prolongs_no_wait_for_a_node_that_does_not_answer(
    existing, monkeypatch
):
    monkeypatch.setattr(module, "LIMIT_S", {"quick": 0.1})
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    link, asked = Link("n1", Mute()), spec(preflight="quick")
    preflight = Preflight(asked, Attempts(asked))
    preflight.begin([link], Choice(existing.runs[0], 1))
    back = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
    monkeypatch.setattr(module, "time", back)
    assert await asyncio.wait_for(preflight.unfit([link]), 5) == [], "nor is it accused"
