"""Nodes with a network each, of which one is slow: pairs find it, and accuse neither its partners nor anyone else."""

import pytest

from tests.support.doctor.driving import examine, names, unfit
from tests.support.doctor.network import network
from tests.support.doctor.switch import LATENCY_S, LOSS, RATE

__all__ = ["network"]

SICK = 3
DEFECTS = ("latency", "loss", "rate")
PATIENCE_S = 1200
"""on a machine that others use too; alone it takes two minutes"""
pytestmark = [pytest.mark.long, pytest.mark.timeout(PATIENCE_S + 100)]


def shown(report):
    """What the test's output says of a run."""
    columns = ("node", "check", "found", "expected")
    wrong = [[row[name] for name in columns] for row in report["results"] if row["verdict"] != "ok"]
    times = {row["node"]: row["found"] for row in report["results"] if row["check"] == "pair message"}
    return f"{report['seconds']} {wrong} {times}\n" + "\n".join(map(str, report["pairs"]))


@pytest.mark.slurm
@pytest.mark.parametrize("time", range(5))
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_node_with_a_slow_network_is_named_and_no_other(tmp_path, slurm_cluster, network, defect, time):
    nodes = 7 + time % 2
    sick = names("slurm", nodes)[SICK]
    made = network(names("slurm", nodes), {sick: defect})
    code, report = examine(
        tmp_path, "pair", nodes=nodes, network=made, executor="slurm", env=slurm_cluster.env, timeout=PATIENCE_S
    )  # fmt: skip
    print(f"{defect} ({LATENCY_S} s, {LOSS:.0%}, {RATE}) on {sick}:", shown(report))
    assert {node for node, _ in unfit(report)} == {sick}
    assert (code, list(report["exclude"]), len(report["nodes"])) == (1, [sick], nodes)


@pytest.mark.parametrize("nodes", [7, 8])
def test_healthy_networks_accuse_no_node(tmp_path, network, nodes):
    made = network(names("local", nodes), {})
    code, report = examine(tmp_path, "pair", "all-nodes", nodes=nodes, network=made, timeout=PATIENCE_S)
    print("healthy:", shown(report))
    assert (code, unfit(report), report["exclude"]) == (0, set(), {})
