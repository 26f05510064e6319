"""The fault storm: many simulated runs with faults of all kinds on real Slurm, while launcher and leaders are killed.

Each run ends ok once, or failed with its expected outcome, with all its attempts recorded; no process is left.
"""

import json
import os
import random
import time
from collections import Counter, defaultdict

import pytest

from tests.support import driving
from tests.support.faults.simulated import EXPECTED
from tests.support.slurm.cluster import Cluster
from tests.support.storm import storm

pytestmark = [pytest.mark.slurm, pytest.mark.parallel]

GRID = """
name: tempest
workload: simulated
strategy: exhaustive
models: [tiny-1M]
nodes: [{nodes}]
sequence_length: 64
global_batch: 4096
dtype: [fp32]
iterations: 3
warmup_iterations: 2
repeats: {repeats}
timeouts: {{start: 60s, first_iteration: 60s, steady: 8s}}
params:
  step_s: 0.02
  fault_rank: 1
  fault_iteration: 3
  fault_s: 600
  fault_code: 9
  fault: [{faults}]
site: {{gpu: cpu, gpus_per_node: 2, pilot_time: {pilot_time}, poll_interval_s: 1, max_pilots: {pilots}}}
"""
QUICK = ('""', "leak_child", "exception", "hang", "oom_cuda", "signal")


def assert_straight(directory, expected, runs):
    """One record per attempt, one claim per record; each run ended with its fault's outcome, once."""
    records = driving.records_of(directory)
    by_run = defaultdict(list)
    for record in records:
        by_run[record["run_id"]].append(record)
    assert len(by_run) == runs
    for attempts in by_run.values():
        outcomes = [record["outcome"] for record in sorted(attempts, key=lambda r: r["attempt"])]
        fault = json.loads(attempts[0]["params_json"])["fault"] or '""'
        assert outcomes[-1] == expected[fault], (fault, outcomes)
        assert set(outcomes) <= {expected[fault], "lost", "preempted", "network"}, (fault, outcomes)
        assert outcomes.count("ok") == (expected[fault] == "ok"), (fault, outcomes)
    per_attempt = Counter((record["run_id"], record["attempt"]) for record in records)
    assert set(per_attempt.values()) == {1}
    claims = {path.name for path in (directory / "claims").iterdir() if not path.name.startswith(".")}
    assert claims == {f"{run_id}.{attempt}" for run_id, attempt in per_attempt}
    assert not [pilot.name for pilot in driving.state_of(directory).pilots.values() if pilot.open]


def blow(tmp_path, cluster, seed, *, faults, nodes, repeats, pilots, kills, limit_s, pilot_time="20m", **pauses):
    grid, directory = tmp_path / "grid.yaml", tmp_path / "s"
    words = {"nodes": nodes, "repeats": repeats, "pilots": pilots, "pilot_time": pilot_time}
    grid.write_text(GRID.format(faults=", ".join(faults), **words))
    began = time.monotonic()
    killed = storm(directory, grid, "slurm", seed, kills=kills, env=cluster.env, limit_s=limit_s, **pauses)
    runs = len(faults) * repeats * len(nodes.split(","))
    attempts = len(driving.records_of(directory))
    print(f"seed {seed}: {runs} runs, {attempts} attempts, killed {killed}, {time.monotonic() - began:.0f} s")
    assert sum(killed.values()) >= kills / 2, killed
    assert driving.wait_until_unmarked(directory) == []
    assert_straight(directory, EXPECTED, runs)
    cluster.wait_idle()
    jobs = [job for job in cluster.squeue().values() if job["name"].startswith("tempest-")]
    assert not [job for job in jobs if job["state"] in ("PENDING", "RUNNING", "COMPLETING")]
    names = [job["name"] for job in jobs]
    assert len(set(names)) == len(names), "a pilot was submitted twice"


@pytest.mark.long  # minutes on two cores
def test_a_small_storm(tmp_path, slurm_cluster):
    blow(tmp_path, slurm_cluster, 7, faults=QUICK, nodes="1", repeats=1, pilots=3, kills=2, limit_s=240)


def blow_on_16_nodes(tmp_path, seed, **how):
    """Short pilots, so that there are many: a single pilot of 20 minutes would run all runs of its width."""
    with Cluster(nodes=16, gpus_per_node=2, accounting=True) as cluster:
        blow(tmp_path, cluster, seed, faults=EXPECTED, nodes="1, 2", pilots=8, pilot_time="2m", **how)


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", [1])
def test_a_storm_of_200_runs_on_16_nodes(tmp_path, slurm_or_skip, seed):
    blow_on_16_nodes(tmp_path, seed, repeats=5, kills=16, limit_s=2000, pauses_s=(2.0, 20.0))


@pytest.mark.long
@pytest.mark.timeout(6000)
def test_a_random_storm_of_400_runs_on_16_nodes(tmp_path, slurm_or_skip):
    """SWEEP_STORM_SEED repeats one."""
    seed = int(os.environ.get("SWEEP_STORM_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"SWEEP_STORM_SEED={seed}")
    blow_on_16_nodes(tmp_path, seed, repeats=10, kills=40, limit_s=5000, pauses_s=(0.5, 30.0))
