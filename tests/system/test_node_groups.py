"""A sweep over two kinds of nodes, each in a partition of its own, on real Slurm."""

import json

import pytest

from sweep.state.events import PilotIntended
from tests.support import driving
from tests.support.slurm.cluster import Cluster

pytestmark = pytest.mark.slurm

GROUPS = {"fast": {"partition": "fast"}, "old": {"partition": "old", "gpu": "a100", "gpus_per_node": 1, "max_nodes": 1}}
SITE = {"gpu": "h100", "poll_interval_s": 1, "segment": 1, "node_groups": GROUPS}
RUNS = {"nodes": [1, 2], "micro_batch_size": [1, 2], "iterations": 5, "params": {"step_s": 0.01}}
GRID = driving.simulated(SITE, **RUNS)
PARTITIONS = "PartitionName=fast Nodes=n[1-2] State=UP\nPartitionName=old Nodes=n[3-4] State=UP\n"
TOPOLOGY = "SwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 Nodes=n[2-3]\nSwitchName=core Switches=leaf[1-2]\n"
"""n4 is on no switch"""
LEAVES = {"n1": "leaf1", "n2": "leaf2", "n3": "leaf2", "n4": None}
OLD = {"n3", "n4"}


def test_each_kind_is_measured_on_its_own_nodes(tmp_path, slurm_or_skip):
    """Every run once, on nodes of its group; records, status, best and heatmap keep the groups apart."""
    directory = tmp_path / "s"
    made = Cluster(nodes=4, accounting=False, extra=PARTITIONS, topology=TOPOLOGY, cpus_of={"n3": 4, "n4": 4})
    with made as cluster:
        words = driving.launch_words(tmp_path, GRID, executor="slurm")
        shown = driving.succeeds(*words, "--dry-run", "--json", env=cluster.env)
        scripts = json.loads(shown.stdout)["scripts"]
        assert "# pilot of 2 nodes@fast\n" in driving.succeeds(*words, "--dry-run", env=cluster.env).stdout
        assert set(scripts) == {"2@fast", "1@old"}
        assert "#SBATCH --partition=old\n#SBATCH --gres=gpu:1\n" in scripts["1@old"]
        assert "#SBATCH --switches=2\n" in scripts["2@fast"], "segments of one node, on topology/tree"
        driving.succeeds(*words, env=cluster.env)
    records = driving.assert_each_run_measured_once(directory)
    places = {(r["model"], r["nodes"], r["gpu"], r["gpus"]) for r in records}
    assert places == {("tiny-1M@fast", 1, "h100", 2), ("tiny-1M@fast", 2, "h100", 4), ("tiny-1M@old", 1, "a100", 1)}
    on_switches = [r for r in records if r["node_names"] != ["n4"]]
    assert all(r["leaf_switches"] == [LEAVES[node] for node in r["node_names"]] for r in on_switches)
    assert [r["leaf_switches"] for r in records if r["nodes"] == 2] == [["leaf1", "leaf2"]] * 2
    assert all((set(r["node_names"]) <= OLD) == r["model"].endswith("@old") for r in records)
    assert {event.node_group for event in driving.events_of(directory, PilotIntended)} == {"fast", "old"}
    best = json.loads(driving.run("best", directory, "--json").stdout)
    assert {(row["model"], row["nodes"]) for row in best} == {place[:2] for place in places}
    status = json.loads(driving.run("status", directory, "--json").stdout)
    assert {(cell["model"], cell["nodes"]) for cell in status["cells"]} == {place[:2] for place in places}
    shown = driving.run("status", directory)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "tiny-1M@fast" in shown.stdout
    assert "tiny-1M@old" in shown.stdout
    assert (directory / "figures" / "heatmap.png").exists()


def test_this_machine_has_one_kind_of_node(tmp_path):
    done = driving.launch(tmp_path, GRID)
    assert done.returncode == 2
    assert "the executor local has one kind of node, this machine, and the site has node_groups" in done.stderr
    assert not (tmp_path / "s").exists()
