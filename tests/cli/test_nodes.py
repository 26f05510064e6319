"""`sweep nodes`: nodes shown, excluded and released."""

import json
import time

import pytest

from sweep.state.events import CancelRequested, NodeBad
from sweep.store.directory import SweepDir
from sweep.store.journal import write_request
from tests.support import driving
from tests.support.made_sweeps import tree


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("nodes")
    driving.launched(root, driving.simulated({"gpus_per_node": 1}, iterations=1, params={"step_s": 0.01}))
    return root / "s"


def excluded(directory):
    rows = json.loads(driving.run("nodes", directory, "--json").stdout)["nodes"]
    return {row["node"]: row["excluded"] for row in rows if row["excluded"]}


def test_a_user_excludes_and_releases(done):
    assert excluded(done) == {}
    driving.succeeds("nodes", done, "exclude", "n17", "n18", "--reason", "ECC errors")
    assert excluded(done) == dict.fromkeys(("n17", "n18"), "by the user: ECC errors")
    assert "node n17 is excluded: by the user: ECC errors" in driving.run("status", done).stdout
    driving.succeeds("nodes", done, "release", "n17")
    assert list(excluded(done)) == ["n18"]
    assert "local-0: 1 of 1 attempts ok; in use" in driving.run("nodes", done).stdout


def test_what_a_person_asks_for_counts_though_another_host_whose_clock_is_ahead_wrote_before(done):
    directory = SweepDir(done)
    ahead = time.time() + 300
    write_request(directory, "nodes", [NodeBad(time=ahead, node="n19", reason="by a pilot")])
    driving.succeeds("nodes", done, "release", "n19")
    assert "n19" not in excluded(done)
    write_request(directory, "cancel", [CancelRequested(time=ahead + 1)])
    assert "cancelled" in driving.run("status", done).stdout
    driving.succeeds("resume", done)
    assert "cancelled" not in driving.run("status", done).stdout


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("drop", "n1"), ["unknown action 'drop'"]),
        (("exclude",), ["no node is named"]),
        (("exclude", "n[1-4]"), ["not a node name"]),
        (("release", "n1", "n99"), ["n1 is not excluded", "n99 is not excluded"]),
    ],
)
def test_mistakes_are_reported(done, words, reported):
    before = tree(done)
    failed = driving.run("nodes", done, *words)
    assert failed.returncode == 2
    assert [each for each in reported if each not in failed.stderr] == []
    assert tree(done) == before
