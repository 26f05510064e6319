"""Nodes are checked before a pilot's first run: unfit ones are left out, healthy ones lose no time."""

import json
import sys

import pytest

from sweep.checks.check import CheckResult, Finding, Verdict
from sweep.checks.node import NODE
from sweep.pilot.leader.preflight import checks_of, readings_in, reasons_to_exclude
from sweep.state.events import AttemptStarted, NodeBad, NodeFit
from tests.support import driving
from tests.support.doctor.driving import DEFECT, needs_cgroup, needs_root
from tests.support.pilot_parts import spec

OF_SITE = [check.name for check in NODE if check.of_site]


def result(node, check="memlock"):
    finding = Finding(verdict=Verdict.BELOW_FLOOR, found="4 kB", expected="32 GiB")
    return CheckResult(check=check, tier="node", node=node, finding=finding, remedy="raise it")


def test_what_is_wrong_on_all_nodes_excludes_no_node_and_is_reported(capsys):
    assert reasons_to_exclude([result("n1"), result("n2")], OF_SITE, 2) == {}
    assert "all 2 nodes: memlock: 4 kB, expected 32 GiB. raise it" in capsys.readouterr().err
    assert reasons_to_exclude([result("n2")], OF_SITE, 2) == {"n2": "memlock: 4 kB, expected 32 GiB"}
    found = reasons_to_exclude([result("n1", "ECC")], OF_SITE, 1)
    assert set(found) == {"n1"}, "a defect of hardware is a node's own"


def test_quick_is_a_part_of_node_and_starts_no_interpreter():
    quick, every = (
        {check.name for check in checks_of(spec(preflight=which, gpu="h100", gpus_per_node=8))}
        for which in ("quick", "node")
    )
    assert quick < every
    assert every - quick >= {"torch import", "NVLinks", "GPU answer time"}
    assert {"memlock", "shared memory", "GPU count", "ECC"} <= quick


@pytest.mark.parametrize("text", [None, "", "[1]", "{", '{"r": 3}'])
def test_malformed_readings_are_none(text):
    assert all(reading.error for reading in readings_in(text).values())


def launched(tmp_path, cluster, defects, nodes=(1, 4), step_s=0.1, timeout=300, fault=None, **keys):
    """The directory of a sweep on nodes of which some are defective."""
    prefix = [sys.executable, str(DEFECT), ",".join(f"{node}={what}" for node, what in defects.items())]
    site = {"gpus_per_node": 1, "max_pilots": 1, "poll_interval_s": 1, "container_prefix": prefix}
    keys |= {"repeats": 1, "iterations": 2, "params": {"step_s": step_s, **(fault or {})}, "strategy": "guided"}
    keys |= {"nodes": nodes, "global_batch": 12288, "micro_batch_size": [1, 2, 4, 8]}
    grid = driving.simulated(site, **keys)
    driving.launched(tmp_path, grid, executor="slurm", env=cluster.env, timeout=timeout)
    return tmp_path / "s"


def used_nodes(directory):
    """The nodes that runs began on."""
    return {node for event in driving.events_of(directory, AttemptStarted) for node in event.nodes}


@pytest.mark.slurm
def test_an_unfit_node_measures_nothing_and_its_reason_is_shown(tmp_path, slurm_cluster):
    """On by default: the pilot of four nodes has one with little locked memory; runs go to the others."""
    bad = "n2"
    directory = launched(tmp_path, slurm_cluster, {bad: "locked_memory"})
    driving.assert_each_run_measured_once(directory)
    assert bad not in used_nodes(directory) != set()
    (event,) = driving.events_of(directory, NodeBad)
    assert event.node == bad
    assert event.reason.startswith("preflight: memlock: 4.1 kB, expected unlimited or at least 32 GiB")
    shown = driving.run("nodes", directory, "--json", env=slurm_cluster.env)
    (row,) = [row for row in json.loads(shown.stdout)["nodes"] if row["node"] == bad]
    assert row["excluded"] == event.reason


@pytest.mark.slurm
def test_off_is_off(tmp_path, slurm_cluster):
    directory = launched(tmp_path, slurm_cluster, {"n2": "locked_memory"}, [4], preflight="off")
    assert not driving.events_of(directory, NodeBad)
    assert "n2" in used_nodes(directory)


HEALTHY = {"none": ""}


@needs_root
@needs_cgroup
@pytest.mark.slurm
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("time", range(5))
def test_a_slow_node_is_left_out_before_the_first_run(tmp_path, slurm_cluster, time):
    """Its quota is not visible in there, so only its speed shows it."""
    defects = {"n3": "hidden_quota"}
    directory = launched(tmp_path, slurm_cluster, defects, [1, 6], preflight="perf", timeout=800)
    events = driving.events_of(directory, NodeBad)
    print([(event.node, event.reason) for event in events], used_nodes(directory))
    assert "n3" not in used_nodes(directory)
    (event,) = events
    assert event.node == "n3"
    assert event.reason.startswith("preflight: ")
    assert "the nodes' median" in event.reason
    assert event.time < min(began.time for began in driving.events_of(directory, AttemptStarted))
    assert used_nodes(directory)


@pytest.mark.slurm
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_speeds_of_healthy_nodes_leave_none_out(tmp_path, slurm_cluster):
    directory = launched(tmp_path, slurm_cluster, HEALTHY, [1, 6], preflight="perf", timeout=800)
    assert not driving.events_of(directory, NodeBad)
    driving.assert_each_run_measured_once(directory)


SLOW_RANK = {"fault": "slow_rank", "fault_rank": 2, "fault_s": 1.0}
"""the third of six nodes, n3, holds the slowest rank of every run"""


@pytest.mark.slurm
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_node_that_was_slow_in_runs_and_is_not_alone_goes_on(tmp_path, slurm_cluster):
    directory = launched(tmp_path, slurm_cluster, HEALTHY, [6], 0.5, fault=SLOW_RANK, timeout=800)
    print(driving.events_of(directory, NodeFit), driving.events_of(directory, NodeBad))
    (fit,) = driving.events_of(directory, NodeFit)
    assert (fit.node, driving.events_of(directory, NodeBad)) == ("n3", [])
    after = [event for event in driving.events_of(directory, AttemptStarted) if event.time > fit.time]
    assert any("n3" in event.nodes for event in after)
    driving.assert_each_run_measured_once(directory)


@needs_root
@needs_cgroup
@pytest.mark.slurm
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_node_that_was_slow_in_runs_and_alone_is_left_out_with_both_reasons(tmp_path, slurm_cluster):
    directory = launched(tmp_path, slurm_cluster, {"n3": "hidden_quota"}, [6], 0.5, fault=SLOW_RANK, timeout=800)
    print(driving.events_of(directory, NodeFit), driving.events_of(directory, NodeBad))
    (bad,) = driving.events_of(directory, NodeBad)
    assert bad.node == "n3"
    assert bad.reason.startswith("held the slowest rank in 3 of its 3 runs")
    assert "; alone then " in bad.reason
    assert "the nodes' median" in bad.reason
    assert not any("n3" in e.nodes for e in driving.events_of(directory, AttemptStarted) if e.time > bad.time)
    driving.assert_each_run_measured_once(directory)
