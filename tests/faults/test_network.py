"""One agent is cut off from its leader by the network: its run is retried, the others go on, no job is cancelled."""

import time

import pytest

from sweep.pilot.timeouts import SILENCE_S
from sweep.state.events import AttemptStarted, NodeBad, PilotEnded, PilotStarted
from tests.support import driving
from tests.support.cut_network import network
from tests.support.faults.table import note
from tests.support.paths import REPOSITORY
from tests.support.process_kinds import RANKS, find

__all__ = ["network"]

SHORT_TIMEOUTS = REPOSITORY / "tests" / "support" / "short_timeouts"
MANY = [2.0 + 0.01 * number for number in range(16)]


def launch(tmp_path, executor, env, nodes, step_s, prefix):
    site = {"pilot_time": "20m", "poll_interval_s": 1, "max_pilots": 1, "container_prefix": prefix}
    keys = {"micro_batch_size": [1, 2], "iterations": 4, "warmup_iterations": 2, "params": {"step_s": step_s}}
    grid = driving.simulated(site, nodes=nodes, **keys, constraints=["nodes < 8 or step_s < 2.005"])
    return driving.launching(tmp_path, grid, env=env, output=(tmp_path / "launch.out").open("ab"), executor=executor)


def running_on(directory, node):
    """The (run_id, attempt) that runs on the node now; None without one."""
    if not (directory / "provenance.json").exists():
        return None
    for run_id, run in driving.state_of(directory).runs.items():
        for attempt in run.attempts.values():
            if attempt.outcome is None and attempt.started_at and node in attempt.nodes:
                return run_id, attempt.number
    return None


def test_an_agent_that_is_cut_off_comes_back_and_its_run_is_measured_again(tmp_path, network):
    """On this machine, with timeouts of seconds."""
    env = {"PYTHONPATH": f"{SHORT_TIMEOUTS}:{REPOSITORY}"}
    prefix = network.enter('case " $* " in *" --index 1 "*) true;; *) false;; esac')
    launcher = launch(tmp_path, "local", env, nodes=2, step_s=0.6, prefix=prefix)
    directory = tmp_path / "s"
    driving.wait_for(lambda: running_on(directory, "local-1") and len(find("rank", directory, launcher)) == RANKS)
    with network.cut_for(4.5):
        pass
    assert launcher.wait(120) == 0, driving.output_of(tmp_path)
    records = driving.records_of(directory)
    assert [record["outcome"] for record in records] == ["network", "ok", "ok"], driving.output_of(tmp_path)
    assert "no message for 3 s" in records[0]["message"]
    assert len(driving.events_of(directory, PilotStarted)) == len(driving.events_of(directory, PilotEnded)) == 1
    assert driving.wait_until_unmarked(directory, 20) == []


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seconds", [15, 30, 120])
def test_one_of_eight_nodes_is_cut_off(tmp_path, slurm_cluster, network, seconds):
    prefix = network.enter('test "$SLURMD_NODENAME" = n3')
    launcher = launch(tmp_path, "slurm", slurm_cluster.env, nodes=[1, 8], step_s=MANY, prefix=prefix)
    directory = tmp_path / "s"
    driving.wait_for(lambda: running_on(directory, "n3") not in (None, running_on(directory, "n4")), 200)
    hit, cut_at = running_on(directory, "n3"), time.time()
    with network.cut_for(seconds):
        pass
    mended_at = time.time()
    assert launcher.wait(500) == 0, driving.output_of(tmp_path)
    records = driving.assert_each_run_measured_once(directory)
    of_hit = next(r for r in records if (r["run_id"], r["attempt"]) == hit)
    ends = {"network"} if seconds > SILENCE_S + 15 else {"ok"} if seconds < 25 else {"ok", "network"}
    assert of_hit["outcome"] in ends, (of_hit["message"], driving.output_of(tmp_path))
    others = [r for r in records if (r["run_id"], r["attempt"]) != hit]
    assert {r["outcome"] for r in others} == {"ok"}, driving.output_of(tmp_path)
    assert any(cut_at < r["started_at"] < mended_at for r in others), "others begin meanwhile"
    assert not driving.events_of(directory, NodeBad)
    assert not driving.state_of(directory).excluded_nodes
    assert [event.reason for event in driving.events_of(directory, PilotEnded)] == ["no remaining run fits"]
    began = [e for e in driving.events_of(directory, AttemptStarted) if e.time > mended_at and "n3" in e.nodes]
    assert began or seconds == 120, "the node is used again"
    left = driving.wait_until_unmarked(directory, 30)
    assert left == []
    lost = of_hit["outcome"] == "network"
    detect_s = of_hit["ended_at"] - of_hit["teardown_s"] - cut_at if lost else None
    fault = f"an agent of 8 is cut off from its leader for {seconds} s"
    note(fault, of_hit["outcome"], detect_s, of_hit["teardown_s"] if lost else None, left, "ok")
