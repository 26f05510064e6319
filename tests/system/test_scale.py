"""Many runs: which pilots are asked for, how full they are by the model, and how a real cluster of 16 nodes is used."""

import argparse
import json

import pytest
import simpy

from benchmarks import model
from benchmarks.rehearsal import Rehearsal, rehearse
from sweep.launcher.pilots_wanted import SHARE_S, Capacity, pilots_wanted
from sweep.plan.runs import PlannedRun
from sweep.state.state import World
from tests.support import driving
from tests.support.slurm.cluster import Cluster


def many(count, nodes=1):
    return [PlannedRun(f"r{nodes}-{i}", "m", nodes, None, "{}") for i in range(count)]


def capacity(**changes):
    return Capacity(**({"max_pilots": 8, "pilot_time_s": 4 * 3600, "run_s": 60, "attempt_s": 900} | changes))


def test_work_is_shared_by_as_many_pilots_as_the_site_allows():
    runs = many(200)  # 200 minutes
    wanted = pilots_wanted(runs, World(), capacity())
    assert len(wanted) == 6, "each has half an hour's work or more"
    assert {one.time_limit_s for one in wanted} == {int(2 * 200 / 6 * 60 + 900 + 300) // 60 * 60 + 60}
    assert len(pilots_wanted(runs, World(), capacity(max_pilots=3))) == 3
    (alone,) = pilots_wanted(runs, World(), capacity(max_pilots=1))
    assert alone.time_limit_s == 4 * 3600, "where only one may be, it is as long as it may be"


def test_widths_share_what_the_site_allows():
    wanted = pilots_wanted([*many(200), *many(200, 2)], World(), capacity(max_pilots=6))
    assert [one.nodes for one in wanted] == [1, 1, 1, 2, 2, 2]


def test_little_work_is_one_pilot():
    assert len(pilots_wanted(many(int(SHARE_S / 60) - 1), World(), capacity())) == 1


def test_the_model_fills_a_cluster():
    given = argparse.Namespace(nodes=64, runs=600, widest=16, max_pilots=40, pilot_time=7200, seed=1)
    env = simpy.Environment()
    runs = model.made_runs(given.runs, given.widest)
    sweep = model.Sweep(env, model.Cluster(env, given.nodes), runs, given)
    env.process(sweep.launch())
    env.run()
    found = model.report(sweep, runs, given.nodes)
    assert found["allocated_share_in_attempts_but_last_5_percent"] > 0.9
    assert found["hours"] < 1.5 * found["hours_at_least"]
    assert found["jobs"] < 100


LAUNCHER_MIB, FILES_PER_RUN, JOBS = 300, 10, 30
SHARE = 0.7
"""of the allocated node-time in attempts. A longer sweep has over 0.9 (docs/performance.md): here pilots live for less
than a minute, of which Slurm and Python take seconds to start and end them, and other tests run beside it"""


@pytest.mark.slurm
@pytest.mark.timeout(400)
def test_hundreds_of_runs_on_16_nodes(slurm_or_skip, tmp_path):
    """300 runs of 1, 2, 4 and 8 nodes with 8 ranks each, a node's ranks in one process."""
    rehearsal = Rehearsal(runs=300, iteration_s=0.1, max_pilots=4)
    with Cluster(nodes=16, gpus_per_node=8) as cluster:
        found = rehearse(cluster, tmp_path, rehearsal)
    print(json.dumps(found))
    assert found["exit"] == 0, (tmp_path / "launcher.out").read_text()[-3000:]
    driving.assert_each_run_measured_once(tmp_path / "sweep")
    assert found["widths"] == {1: 120, 2: 90, 4: 60, 8: 30}
    assert (found["runs"], found["lost"], found["doubled"]) == (300, 0, 0)
    assert found["ranks_in_one_process"] == 8
    assert found["jobs"] < JOBS
    assert found["creations_per_run"] < FILES_PER_RUN
    assert not found["creations_overflowed"]
    assert found["share_in_attempts_but_last_5_percent"] >= SHARE, found
    assert found["launcher_peak_mib"] < LAUNCHER_MIB, found
