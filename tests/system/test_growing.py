"""A sweep on this machine that grows while it is measured: `launch --add` and `rerun` while its launcher runs."""

from collections import Counter

import pytest
from click.testing import CliRunner

from sweep.cli.launch import launch
from sweep.cli.requests import rerun
from sweep.outcomes import Outcome
from sweep.store.sweep import open_sweep
from tests.support import driving
from tests.support.driving import wait_for
from tests.support.made_sweeps import GRID

SLOW = ("-o", "params={step_s: 0.8, noise: 0}")
"""so that the launcher is still running when it is extended"""


def begun(directory, ended):
    """Whether this many attempts have ended."""
    return (directory / "provenance.json").exists() and len(driving.records_of(directory)) >= ended


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    """A directory whose launcher saw an extension and a rerun, and what the launcher printed."""
    root = tmp_path_factory.mktemp("grown")
    directory, grid = root / "s", root / "grid.yaml"
    with (root / "out").open("wb") as output:
        launcher = driving.launching(root, GRID.replace("nodes: [1, 2]", "nodes: [1]"), *SLOW, output=output)
        wait_for(lambda: begun(directory, 1))
        first = driving.records_of(directory)[0]["run_id"]
        adding = (str(grid), "--dir", str(directory), "--add", "-o", "nodes=[1,2]", *SLOW)
        for command, words in ((rerun, (str(directory), first)), (launch, adding)):
            done = CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
            assert "the running launcher (process " in done.output
        assert launcher.wait(120) == 0, (root / "out").read_text()
    return directory, (root / "out").read_text()


def test_the_launcher_measured_what_was_added_and_asked_for(grown):
    directory, output = grown
    sweep, sweep_state = open_sweep(directory), driving.state_of(directory)
    assert [path.name for path in sweep.plans] == ["plan.parquet", "plan-0002.parquet"]
    outcomes = {run.run_id: [a.outcome for a in sweep_state.runs[run.run_id].attempts.values()] for run in sweep.runs}
    assert Counter(map(len, outcomes.values())) == {1: 3, 2: 1}
    assert {outcome for found in outcomes.values() for outcome in found} == {Outcome.OK}
    assert "4 runs: 4 ok" in output
    assert {path.name for path in sweep.directory.leases.iterdir()} == {"launcher-0001", "launcher-0002"}


def test_a_pilot_that_began_before_was_followed_by_one_that_saw_the_new_runs(grown):
    added = {planned.run_id for planned in open_sweep(grown[0]).runs[2:]}
    pilots = {True: set(), False: set()}
    for record in driving.records_of(grown[0]):
        pilots[record["run_id"] in added].add(record["pilot"])
    assert "p0001" in pilots[False]
    assert pilots[True]
    assert "p0001" not in pilots[True]
