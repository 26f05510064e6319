"""A sweep directory that is removed while a pilot runs: the pilot ends instead of holding its nodes, and so does its
launcher.
"""

import shutil

import psutil

from sweep.store.sweep import open_sweep
from tests.support import driving
from tests.support.driving import SLOW, running_attempt, wait_for
from tests.support.paths import REPOSITORY

SHORT_TIMEOUTS = REPOSITORY / "tests" / "support" / "short_timeouts"


def test_a_pilot_and_a_launcher_whose_directory_was_removed_end(tmp_path):
    directory = tmp_path / "s"
    (tmp_path / "grid.yaml").write_text(SLOW.format(nodes=1, step_s=0.2, pilot_time="1h"))
    words = ("launch", tmp_path / "grid.yaml", "--dir", directory, "--executor", "local", "--yes", "--detach")
    driving.succeeds(*words, env={"PYTHONPATH": f"{SHORT_TIMEOUTS}:{REPOSITORY}"})
    wait_for(lambda: running_attempt(directory))
    sweep_id = open_sweep(directory).sweep_id
    assert driving.processes_of(sweep_id)
    launchers = launchers_of(directory)
    assert launchers
    shutil.rmtree(directory)
    wait_for(lambda: not driving.processes_of(sweep_id), timeout_s=40)
    wait_for(lambda: not any(process.is_running() for process in launchers), timeout_s=40)


def launchers_of(directory):
    """The processes of `sweep` that name this directory and are no pilot's: of --detach the one in the background."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(directory) in words and any("sweep" in word for word in words) and "resume" in words:
            found.append(process)
    return found
