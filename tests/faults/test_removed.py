"""A sweep directory that is removed while a pilot runs: the pilot ends instead of holding its nodes, and so does its
launcher. One that is away for seconds, or files in it that somebody removes, cost no measurement.
"""

import shutil
import time

import psutil
import pytest

from sweep.store.sweep import open_sweep
from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.paths import REPOSITORY

SHORT_TIMEOUTS = REPOSITORY / "tests" / "support" / "short_timeouts"


def test_a_pilot_and_a_launcher_whose_directory_was_removed_end(tmp_path):
    directory = tmp_path / "s"
    env = {"PYTHONPATH": f"{SHORT_TIMEOUTS}:{REPOSITORY}"}
    driving.launched(tmp_path, driving.slow(0.2, pilot_time="1h"), "--detach", env=env)
    wait_for(lambda: running_attempt(directory))
    sweep_id = open_sweep(directory).sweep_id
    assert driving.processes_of(sweep_id)
    launchers = launchers_of(directory)
    assert launchers
    wait_for(lambda: shutil.rmtree(directory, ignore_errors=True) or not directory.exists())  # they write meanwhile
    wait_for(lambda: not driving.processes_of(sweep_id), timeout_s=40)
    wait_for(lambda: not any(process.is_running() for process in launchers), timeout_s=40)


def test_a_pilot_whose_directory_is_another_sweeps_now_ends_and_leaves_nothing_there(tmp_path):
    """The user removes a sweep, and launches its grid again in the same place, while a pilot of the first lives."""
    grid, directory = driving.slow(0.2, pilot_time="1h"), tmp_path / "s"
    launcher = driving.launching(tmp_path, grid)
    wait_for(lambda: running_attempt(directory))
    first = open_sweep(directory).sweep_id
    launcher.kill()
    wait_for(lambda: shutil.rmtree(directory, ignore_errors=True) or not directory.exists())
    again = driving.launching(tmp_path, grid)
    assert again.wait(120) == 0
    assert not driving.processes_of(first)
    records = driving.assert_each_run_measured_once(directory)
    assert {(record["outcome"], record["attempt"]) for record in records} == {("ok", 1)}
    tokens = {pilot.token for pilot in driving.state_of(directory).pilots.values()}
    assert not any(token.startswith(first) for token in tokens)


def away(directory):
    """An automounter, or a file server that fails over."""
    directory.rename(directory.with_name("away"))
    time.sleep(3)
    directory.with_name("away").rename(directory)


def journals_removed(directory):
    for journal in (directory / "journal").iterdir():
        journal.unlink()


def folder_removed(name):
    return lambda directory: shutil.rmtree(directory / name)


@pytest.mark.parametrize(
    ("act", "reported"),
    [
        (away, ["/s cannot be used since", "/s can be used again, after"]),
        pytest.param(
            journals_removed,
            ["pilot-p0001.jsonl was removed or", "launcher-0002.jsonl was removed or"],
            marks=pytest.mark.long,
        ),
        pytest.param(folder_removed("journal"), ["/s/journal was removed"], marks=pytest.mark.long),
        pytest.param(folder_removed("claims"), ["/s/claims was removed"], marks=pytest.mark.long),
        pytest.param(folder_removed("leases"), ["/s/leases was removed"], marks=pytest.mark.long),
    ],
    ids=["away", "journals", "journal", "claims", "leases"],
)
def test_what_is_removed_for_a_while_or_can_be_written_again_costs_no_measurement(tmp_path, act, reported):
    with (tmp_path / "out").open("wb") as output:
        launcher = driving.launching(tmp_path, driving.slow(0.15, pilot_time="1h"), output=output)
    wait_for(lambda: running_attempt(tmp_path / "s"))
    act(tmp_path / "s")
    assert launcher.wait(60) == 0, (tmp_path / "out").read_text()
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    assert {(record["outcome"], record["attempt"]) for record in records} == {("ok", 1)}
    said = "".join(path.read_text() for path in (tmp_path / "out", *tmp_path.glob("s/pilots/*/stderr")))
    assert not [text for text in reported if text not in said], said
    driving.succeeds("resume", tmp_path / "s")
    assert len(driving.records_of(tmp_path / "s")) == 4, "nothing is measured again"


def launchers_of(directory):
    """The processes of `sweep` that name this directory and are no pilot's: of --detach the one in the background."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(directory) in words and any("sweep" in word for word in words) and "resume" in words:
            found.append(process)
    return found
