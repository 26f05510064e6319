"""A sweep directory is copied while its pilot runs: what is done to the copy never touches the pilot."""

import subprocess

import pytest

from tests.support import driving

REFUSED = (("cancel",), ("resume", "--takeover"))


def original_goes_on(tmp_path, executor, env=None):
    """Copy it, try all that would continue the copy, adopt it; the original's attempts are all first ones."""
    launcher = driving.launching(tmp_path, driving.slow(0.15), executor=executor, env=env)
    driving.wait_for(lambda: driving.running_attempt(tmp_path / "s"))
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", tmp_path / "s", copy], check=True)
    for words in REFUSED:
        done = driving.run(*words, copy, env=env)
        assert done.returncode == 2, (words, done.stderr)
    driving.succeeds("resume", copy, "--adopt", env=env)
    assert launcher.wait(120) == 0
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    assert {(record["attempt"], record["pilot"]) for record in records} == {(1, "p0001")}
    driving.assert_each_run_measured_once(copy)
    assert driving.state_of(copy).pilots["p0001"].gone == "OF_THE_ORIGINAL"
    for directory in (tmp_path / "s", copy):
        assert driving.wait_until_unmarked(directory) == []


def test_on_this_machine(tmp_path):
    original_goes_on(tmp_path, "local")


@pytest.mark.long
@pytest.mark.slurm
def test_on_slurm(tmp_path, slurm_cluster):
    original_goes_on(tmp_path, "slurm", slurm_cluster.env)
    slurm_cluster.wait_idle()
