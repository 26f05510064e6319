"""Kill processes of a sweep at random moments: every run is still measured exactly once."""

import os
import random
from collections import Counter

import pytest

from tests.support import driving
from tests.support.storm import KINDS, storm

GRID = """
name: storm
workload: simulated
models: [tiny-1M]
strategy: prune
nodes: [1, 2]
sequence_length: 64
global_batch: 4096
dtype: [fp32]
micro_batch_size: [1, 2, 4]
tp: [1, 2]
iterations: 3
warmup_iterations: 1
repeats: {repeats}
params: {{step_s: 0.3}}
site: {{gpu: cpu, gpus_per_node: 2, pilot_time: 10m, poll_interval_s: 1, max_pilots: 3}}
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 120))])
def test_local_storm(tmp_path, seed):
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID.format(repeats=1))
    directory = tmp_path / "s"
    killed = storm(directory, grid, "local", seed, kills=4)
    assert sum(killed.values()) >= 2, killed
    driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory) == []


@pytest.mark.slurm
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(200, 210))])
def test_slurm_storm(tmp_path, slurm_cluster, seed):
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID.format(repeats=1))
    directory = tmp_path / "s"
    killed = storm(directory, grid, "slurm", seed, kills=4, env=slurm_cluster.env)
    assert sum(killed.values()) >= 2, killed
    driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory) == []
    slurm_cluster.wait_idle()
    jobs = [job for job in slurm_cluster.squeue().values() if job["name"].startswith("storm-")]
    assert not [job for job in jobs if job["state"] in ("PENDING", "RUNNING", "COMPLETING")]
    names = [job["name"] for job in jobs]
    assert len(set(names)) == len(names), "a pilot was submitted twice"


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_500_kills_of_any_process_over_200_runs(tmp_path):
    """SWEEP_STORM_SEED repeats one, as far as its moments go."""
    seed = int(os.environ.get("SWEEP_STORM_SEED") or random.SystemRandom().randrange(1_000_000))
    one_layout = GRID.replace("nodes: [1, 2]", "nodes: 1").replace("tp: [1, 2]", "tp: 1\npp: 1\nzero: 0\nremeasure: 0")
    (tmp_path / "grid.yaml").write_text(one_layout.replace("[1, 2, 4]", "1").format(repeats=200))
    killed = storm(tmp_path / "s", tmp_path / "grid.yaml", "local", seed, 500, KINDS, limit_s=5000)
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    outcomes = Counter(record["outcome"] for record in records)
    print(f"seed {seed}: killed {dict(killed)}; {outcomes['ok']} runs measured, attempts {dict(outcomes)}")
    assert (killed.total(), outcomes["ok"]) == (500, 200)
    assert driving.wait_until_unmarked(tmp_path / "s") == []
