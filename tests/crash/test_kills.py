"""Kill the launcher and the leader at random moments: every run still is measured exactly once."""

import contextlib
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests import driving

GRID = """
name: storm
workload: simulated
models: [tiny-1M]
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


def storm(directory, grid, executor, seed, kills, env=None, limit_s=240, pauses_s=(0.3, 2.5)):
    """Launch, kill at random moments, resume; how many of each kind were killed. ``pauses_s``: least, most between."""
    chance = random.Random(seed)
    killed = {"launcher": 0, "leader": 0}
    arguments = ["launch", grid, "--dir", directory, "--executor", executor, "--yes"]
    with Path(f"{directory}.out").open("ab") as output:
        launcher = driving.start(*arguments, env=env, output=output)
        deadline = time.monotonic() + limit_s
        while launcher.poll() != 0 and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(chance.uniform(*pauses_s) if sum(killed.values()) < kills else 5.0)
            if sum(killed.values()) < kills:
                kind = chance.choice(list(killed))
                if kind == "launcher" and launcher.poll() is None:
                    launcher.kill()
                    launcher.wait()
                    killed["launcher"] += 1
                for pid in driving.leader_pids(directory)[:1] if kind == "leader" else []:
                    killed["leader"] += driving.kill(pid)
            if launcher.poll() not in (None, 0):
                again = ["resume", directory] if (directory / "provenance.json").exists() else arguments
                launcher = driving.start(*again, env=env, output=output)
        assert launcher.poll() == 0, (directory.parent / f"{directory.name}.out").read_text()[-3000:]
    return killed


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_local_storm(tmp_path, seed):
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID.format(repeats=1))
    directory = tmp_path / "s"
    killed = storm(directory, grid, "local", seed, kills=4)
    assert sum(killed.values()) >= 2, killed
    driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory) == []


@pytest.mark.slurm
@pytest.mark.parametrize("seed", [11, 12])
def test_slurm_storm(tmp_path, slurm_cluster, seed):
    grid = tmp_path / "grid.yaml"
    grid.write_text(GRID.format(repeats=2))
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
@pytest.mark.parametrize("seed", range(100, 120))
def test_local_storms(tmp_path, seed):
    test_local_storm(tmp_path, seed)


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.parametrize("seed", range(200, 210))
def test_slurm_storms(tmp_path, slurm_cluster, seed):
    test_slurm_storm(tmp_path, slurm_cluster, seed)
