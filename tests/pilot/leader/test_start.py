"""The start of a pilot: its agents start while the leader still imports, and no signal of that time is lost."""

import os
import signal

import pytest

from sweep.state.events import PilotEnded
from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.pilot_parts import GRID

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


@pytest.fixture
def importing(tmp_path):
    """A sweep whose first leader is held in its imports: (the directory, its launcher, the file that lets it go on)."""
    seen, going_on, path = tmp_path / "seen", tmp_path / "going-on", tmp_path / "path"
    path.mkdir()
    (path / "sitecustomize.py").write_text(SLOW_IMPORT.format(seen=str(seen), going_on=str(going_on)))
    launcher = driving.launching(tmp_path, GRID, env={"PYTHONPATH": os.pathsep.join(map(str, (path, REPOSITORY)))})
    driving.wait_for(seen.exists)
    yield tmp_path / "s", launcher, going_on
    going_on.touch()
    launcher.wait(120)


def test_agents_start_while_the_leader_imports(importing):
    directory, launcher, going_on = importing
    driving.wait_for(lambda: any("sweep.pilot.agent" in line for line in driving.marked_processes(directory)))
    going_on.touch()
    assert launcher.wait(120) == 0
    driving.assert_each_run_measured_once(directory)


def test_a_signal_while_the_leader_imports_ends_the_pilot_in_order(importing):
    directory, launcher, going_on = importing
    (pid,) = driving.leader_pids(directory)
    os.kill(pid, signal.SIGTERM)
    going_on.touch()
    assert launcher.wait(120) == 0
    ended = {event.pilot: event.reason for event in driving.events_of(directory, PilotEnded)}
    assert ended["p0001"] == "received SIGTERM"
    driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory) == []
