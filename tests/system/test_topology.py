"""Runs of several widths in a pilot whose nodes are in NVLink domains and on switches, on a real Slurm cluster."""

import itertools
import json
import os
from collections import Counter

import pytest
import yaml

from sweep.inputs.topology import hosts
from tests.support import driving
from tests.support.slurm.cluster import Cluster
from tests.support.slurm.services import slurm_version

pytestmark = pytest.mark.slurm

WORKLOAD = """
import json, os, time
from sweep.contract import LAYOUT_FIELDS, Measurement, Phase, Workload

WORKLOAD = Workload(
    name="placed", main="placed:main", axes=frozenset({*LAYOUT_FIELDS, "dtype"}), params={"folder": ""},
    slurm_variables=True,
)


def main(run, progress):
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SWEEP_NODE")
    with open(f"{run.params['folder']}/{run.run_id}.{run.place.rank}", "w") as file:
        json.dump([os.environ[name] for name in names], file)
    progress.heartbeat(Phase.FIRST_ITERATION, 0)
    time.sleep(0.05)
    effective = {name: getattr(run.layout, name) for name in ("dp", "tp")}
    progress.measured(Measurement(step_times_s=[0.01] * run.iterations, warmup_times_s=[0.01] * 2, effective=effective))
"""


def tree(leaves):
    """topology.conf of a tree of three levels, two leaves under each spine."""
    lines = [f"SwitchName=leaf{i} Nodes={nodes}" for i, nodes in enumerate(leaves)]
    lines += [f"SwitchName=spine{i} Switches=leaf[{2 * i}-{2 * i + 1}]" for i in range(len(leaves) // 2)]
    return "\n".join([*lines, f"SwitchName=core Switches=spine[0-{len(leaves) // 2 - 1}]"]) + "\n"


def tp_is_split(record, domain_of):
    """By the ranks of each tensor group: neighbours, a node having as many as its GPUs."""
    per_node, nodes = record["gpus_per_node"], record["node_names"]
    of = [domain_of[nodes[rank // per_node]] for rank in range(record["gpus"])]
    return any(len(set(of[at : at + record["tp"]])) > 1 for at in range(0, len(of), record["tp"]))


def unit_of(units):
    """Node -> the unit that has it. ``units``: name -> list of nodes."""
    return {node: name for name, nodes in units.items() for node in hosts(nodes)}


def measure(tmp_path, cluster, domain_of, leaf_of, fabric=None, *, stated, **keys):
    """The records of a sweep in one pilot with all nodes, whose groups are whole. They say where they were; ``fabric``
    is what the launcher read of Slurm's controller for predictions.
    """
    site = {"pilot_time": "30m", "poll_interval_s": 1, "max_pilots": 1, "domain_nodes": stated}
    keys |= {"models": {"eight": driving.EIGHT}, "strategy": "exhaustive", "iterations": 5, "remeasure": 0}
    keys |= {"global_batch": 20000, "global_batch_tolerance": 0.99, "tp_across_nodes": True}
    grid = driving.simulated(site, **keys, tp=[1, 4, 8], micro_batch_size=[1, 2, 3, 4, 5, 6, 7, 8])
    driving.launched(tmp_path, grid, executor="slurm", env=cluster.env, timeout=1800)
    records = driving.records_of(tmp_path / "s")
    assert (yaml.safe_load((tmp_path / "s" / "site.yaml").read_text()).get("fabric")) == fabric
    assert {record["outcome"] for record in records} == {"ok"}
    for record in records:
        names = record["node_names"]
        assert record["domains"] == [domain_of[node] for node in names]
        assert record["leaf_switches"] == ([leaf_of[node] for node in names] if leaf_of else None)
        together = max(1, record["tp"] // record["gpus_per_node"])
        fits = sum(count // together * together for count in Counter(domain_of.values()).values()) >= record["nodes"]
        assert tp_is_split(record, domain_of) is not fits, record["run_id"]
        assert ("tp" in record["split_groups"]) is not fits
        order = [(domain_of[node], leaf_of.get(node)) for node in names]
        apart = 1 + sum(a != b for a, b in itertools.pairwise(order)) - len({*order})
        assert not apart or not fits, "ranks follow domain and switch; the nodes of split groups come last"
    return records


def test_groups_stay_in_their_domain_and_ranks_are_numbered_by_it(tmp_path, slurm_cluster, monkeypatch):
    """Domains that take turns in the order of nodes, so that no order but theirs keeps groups whole. Every rank finds
    itself where the record says, by the variables of torchrun and by those of Slurm, by which all trainers do.
    """
    folder = tmp_path / "seen"
    folder.mkdir()
    driving.plug_in(tmp_path, "placed", "placed:WORKLOAD", WORKLOAD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    stated = ["n[1,3,5,7]", "n[2,4,6,8]"]
    settings = {"nodes": [1, 2, 4, 8], "repeats": 1, "budget": {"runs": 10}, "params": {"folder": str(folder)}}
    domain_of = unit_of({nodes: nodes for nodes in stated})
    records = measure(tmp_path, slurm_cluster, domain_of, {}, stated=stated, workload="placed", **settings)
    assert len(records) == 10
    assert {record["nodes"] for record in records} == {1, 2, 4, 8}
    for record in records:
        for rank in range(record["gpus"]):
            node, local = divmod(rank, record["gpus_per_node"])
            seen = json.loads((folder / f"{record['run_id']}.{rank}").read_text())
            assert seen == [*map(str, (rank, local, node) * 2), record["node_names"][node]]


BLOCKS = "BlockName=rack1 Nodes=n[1-18]\nBlockName=rack2 Nodes=n[19-36]\nBlockSizes=18\n"


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("plugin", ["tree", "block"])
def test_three_hundred_runs_of_mixed_widths_on_36_nodes(tmp_path, slurm_or_skip, plugin):
    """A tree's domains are the site's; blocks are domains themselves."""
    if plugin == "block" and slurm_version() < (24, 5):
        pytest.skip("this Slurm states no blocks: set SLURM_PREFIX to one that does (tests/support/slurm)")
    racks = ["n[1-18]", "n[19-36]"]
    leaves = {f"leaf{i}": nodes for i, nodes in enumerate(("n[1-9]", "n[10-18]", "n[19-27]", "n[28-36]"))}
    domain_of = unit_of(dict(zip(racks if plugin == "tree" else ("rack1", "rack2"), racks, strict=True)))
    leaf_of = unit_of(leaves) if plugin == "tree" else domain_of
    settings = {
        "repeats": 2, "budget": {"runs": 300}, "nodes": [1, 2, 3, 4, 6, 8, 12, 18, 36],
        "params": {"step_s": 0.6, "one_process_per_node": True}, "stated": racks if plugin == "tree" else [],
    }  # fmt: skip
    topology = tree(leaves.values()) if plugin == "tree" else BLOCKS
    with Cluster(nodes=36, accounting=False, topology=topology) as cluster:
        units = (0, 0, 9, 4) if plugin == "tree" else (18, 2, 18, 2)
        fabric = dict(zip(("domain_nodes", "domains", "switch_nodes", "switches"), units, strict=True))
        records = measure(tmp_path, cluster, domain_of, leaf_of, fabric, **settings)
    assert len(records) == 300
    took = max(r["ended_at"] for r in records) - min(r["started_at"] for r in records)
    share = sum((r["ended_at"] - r["started_at"]) * r["nodes"] for r in records) / (took * 36)
    print(f"{plugin}: {share:.1%} of node time in attempts, {took:.0f} s")
    assert share >= 0.94
