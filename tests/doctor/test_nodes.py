"""Nodes with defects, on this machine and on a real Slurm: each is found and named, and no other node is."""

import pytest

from tests.support.doctor.driving import examine, names, needs_cgroup, needs_root, unfit, verdicts

PATIENCE_S = 1200
"""on a machine that others use too; alone it takes less than three minutes"""
LENIENT_S = 120.0
"""what fails a test on a machine that others use too; alone it takes less than 30 s"""
FOUND = {
    "locked_memory": "memlock",
    "full_shared_memory": "shared memory",
    "other_torch": "software",
    "wrong_clock": "clock",
    "never_starts": "answers",
}
"""defect -> the check that names it; an unreadable sensor makes no node unfit"""
NODE_DEFECTS = (*FOUND, "unreadable_sensor")


TIMES = [pytest.mark.parametrize("time", range(5)), pytest.mark.parametrize("nodes", [8, 7])]


def each_time(test):
    """On Slurm with 8 and with 7 nodes, five times each."""
    for mark in (pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(PATIENCE_S + 100), *TIMES):
        test = mark(test)
    return test


@needs_root
@each_time
def test_six_defects_are_named(tmp_path, slurm_cluster, nodes, time):
    defects = dict(zip(names("slurm", nodes)[1:], NODE_DEFECTS, strict=False))
    env = slurm_cluster.env
    code, report = examine(tmp_path, "node", nodes=nodes, defects=defects, executor="slurm", env=env)
    assert unfit(report) == {(node, FOUND[what]) for node, what in defects.items() if what in FOUND}, report["results"]
    assert (code, set(report["nodes"])) == (1, set(names("slurm", nodes)))
    assert set(report["exclude"]) == {node for node, what in defects.items() if what in FOUND}
    (blind,) = [node for node, what in defects.items() if what == "unreadable_sensor"]
    assert verdicts(report, "shared memory")[blind] == "unknown"
    assert report["seconds"]["node"] < LENIENT_S
    slurm_cluster.wait_idle()


@each_time
@pytest.mark.parametrize("half", [1, 2])
def test_healthy_nodes_are_never_accused(tmp_path, slurm_cluster, nodes, time, half):
    tiers = ("node", "perf", "pair", "all-nodes")
    code, report = examine(
        tmp_path, *tiers, nodes=nodes, executor="slurm", env=slurm_cluster.env, timeout=PATIENCE_S
    )  # fmt: skip
    assert (code, unfit(report), report["exclude"]) == (0, set(), {})
    assert set(report["nodes"]) == set(names("slurm", nodes))
    assert report["seconds"]["pair"] < 180


@needs_root
@needs_cgroup
@each_time
def test_the_quota_of_a_node_with_half_the_cpu_is_named(tmp_path, slurm_cluster, nodes, time):
    code, report = examine(
        tmp_path, "node", "perf", nodes=nodes, defects={"n4": "half_the_cpu"}, executor="slurm",
        env=slurm_cluster.env, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ("n4", "CPU quota") in unfit(report)
    assert {node for node, _ in unfit(report)} == {"n4"}
    assert code == 1


@each_time
def test_a_node_that_hangs_in_a_collective_is_found_by_bisection(tmp_path, slurm_cluster, nodes, time):
    code, report = examine(
        tmp_path, "all-nodes", nodes=nodes, defects={"n5": "hangs_in_collective"}, executor="slurm",
        env=slurm_cluster.env, timeout=PATIENCE_S,
    )  # fmt: skip
    assert unfit(report) == {("n5", "exchange")}
    assert code == 1


@pytest.mark.long
def test_a_node_that_hangs_is_named_by_pairs_and_by_the_whole_and_the_rest_is_measured(tmp_path):
    code, report = examine(tmp_path, "pair", "all-nodes", nodes=3, defects={"local-1": "hangs_in_collective"})
    assert {node for node, _ in unfit(report)} == {"local-1"}
    assert {check for _, check in unfit(report)} >= {"pair send", "exchange"}
    assert code == 1
    rates = report["rates"]["collectives"]
    assert {one["nodes"] for one in rates} == {2}
