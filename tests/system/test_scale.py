"""Many runs: which pilots are submitted, how full they are by the model, and how a real cluster of 16 nodes is used."""

import argparse
import json

import pytest
import simpy

from benchmarks import model
from benchmarks.rehearsal import Rehearsal, rehearse
from tests.support import driving
from tests.support.slurm.cluster import Cluster


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
"""of the allocated node-time in attempts. A longer sweep has over 0.9 (docs/research/performance.md): here pilots run
for less than a minute, of which Slurm and Python take seconds to start and end them; other tests run concurrently"""


@pytest.mark.long
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
