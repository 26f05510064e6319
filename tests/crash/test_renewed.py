"""A run is killed as often as it may be tried: what a person resumes is measured."""

import json

import pytest

from tests.support import driving
from tests.support.driving import running_attempt, wait_for
from tests.support.process_kinds import find

pytestmark = pytest.mark.long

GRID = driving.simulated({"poll_interval_s": 1}, **driving.ONE_LAYOUT, iterations=5, params={"step_s": 0.4})


@pytest.mark.parametrize(("kind", "tries", "outcome"), [("rank", 2, "unknown"), ("leader", 4, "lost")])
def test_a_persons_resume_measures_a_run_that_was_killed_as_often_as_it_may_be_tried(tmp_path, kind, tries, outcome):
    directory, output = tmp_path / "s", tmp_path / "out"
    launcher = driving.launching(tmp_path, GRID, output=output.open("wb"))
    for number in range(1, tries + 1):
        wait_for(lambda n=number: running_attempt(directory) and len(attempts(directory)) == n, 120)
        wait_for(lambda: find(kind, directory, launcher))
        driving.kill(find(kind, directory, launcher)[0].pid)
    assert launcher.wait(60) == 1, "a run is unmeasured"
    (run_id,) = driving.state_of(directory).runs
    resumes = f"`sweep resume {directory}` tries again: {run_id}"
    assert resumes in " ".join(driving.run("status", directory).stdout.split())
    assert "`sweep resume` of its sweep measures the rest" in driving.run("best", directory).stderr
    assert json.loads(driving.run("status", directory, "--json").stdout)["unmeasured"] == [run_id]
    driving.succeeds("resume", directory)
    records = driving.assert_each_run_measured_once(directory)
    assert [record["outcome"] for record in records] == [outcome] * tries + ["ok"]
    assert driving.wait_until_unmarked(directory, 20) == []


def attempts(directory):
    """Of the one run."""
    return [number for run in driving.state_of(directory).runs.values() for number in run.attempts]
