"""Many runs: which pilots are asked for, how full they are by the model, and how a real cluster of 16 nodes is used."""

import argparse
import json
import time

import psutil
import pytest
import simpy

from benchmarks import model
from benchmarks.creations import Creations
from sweep.plan import PlannedRun
from sweep.state import World
from sweep.topup import SHARE_S, Capacity, pilots_wanted
from tests import driving
from tests.slurm.cluster import Cluster


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


GRID = """
name: scale
workload: simulated
models: [tiny-1M]
nodes: [1, 2, 4, 8]
sequence_length: 64
global_batch: 4096
global_batch_tolerance: 0.5
dtype: [fp32]
micro_batch_size: [1]
zero: [0]
iterations: 5
repeats: {repeats}
params: {{step_s: {step_s}}}
site: {{gpu: cpu, gpus_per_node: 1, pilot_time: 30m, poll_interval_s: 2, max_pilots: {max_pilots}}}
"""
LAUNCHER_MIB, LAUNCHER_CPU_SHARE, FILES_PER_RUN = 300, 0.05, 10


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(900)
def test_hundreds_of_runs_on_16_nodes(slurm_or_skip, tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID.format(repeats=75, step_s=0.7, max_pilots=2))
    directory = tmp_path / "sweep"
    with Cluster(nodes=16, gpus_per_node=1, accounting=False) as cluster, Creations(tmp_path) as seen:
        options = ("--dir", directory, "--executor", "slurm", "--yes", "-o", "tp=1", "-o", "pp=1")
        begin = time.monotonic()
        process = driving.start("launch", tmp_path / "grid.yaml", *options, env=cluster.env)
        launcher, peak, cpu_s = psutil.Process(process.pid), 0, 0.0
        while process.poll() is None:
            with_children = [launcher, *launcher.children()]
            try:
                peak = max(peak, sum(one.memory_info().rss for one in with_children) >> 20)
                cpu_s = sum(launcher.cpu_times()[:4])
            except psutil.Error:
                pass
            time.sleep(1.0)
        seconds = time.monotonic() - begin
    assert process.returncode == 0
    records = driving.assert_each_run_measured_once(directory)
    pilots = driving.world_of(directory).pilots.values()
    held = [(pilot.started_at, pilot.ended_at, pilot.nodes) for pilot in pilots if pilot.started_at]
    taken = [(record["started_at"], record["ended_at"], record["nodes"]) for record in records]
    first, last = min(begin for begin, _, _ in held), max(end for _, end, _ in held)
    until = last - 0.05 * (last - first)
    share = model.area(taken, until) / model.area(held, until)
    found = {
        "runs": len(records),
        "jobs": len(held),
        "seconds": round(seconds),
        "share_in_attempts": round(share, 3),
        "creations_per_run": round(seen.count / len(records), 2),
        "launcher_peak_mib": peak,
        "launcher_cpu_share": round(cpu_s / seconds, 4),
    }
    print(json.dumps(found))
    assert len(records) == 300
    assert len(held) < 100
    assert seen.count < FILES_PER_RUN * len(records)
    assert share >= 0.9, found
    assert peak < LAUNCHER_MIB, found
