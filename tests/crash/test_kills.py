"""Kill processes of a sweep at random moments: every run is still measured exactly once."""

import contextlib
import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.process_kinds import find

KINDS = ("launcher", "leader", "agent", "fork server", "rank")


def storm(directory, grid, executor, seed, kills, kinds=KINDS[:2], env=None, limit_s=240, pauses_s=(0.3, 2.5)):
    """How many of each kind were killed, each as often as there was one to kill. ``pauses_s``: min, max between."""
    chance = random.Random(seed)
    killed = Counter(dict.fromkeys(kinds, 0))
    arguments = driving.launch_words(directory.parent, grid, executor=executor)
    with Path(f"{directory}.out").open("ab") as output:
        launcher = driving.start(*arguments, env=env, output=output)
        deadline = time.monotonic() + limit_s
        while launcher.poll() != 0 and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(chance.uniform(*pauses_s) if killed.total() < kills else 5.0)
            if killed.total() < kills:
                kind = chance.choice(kinds)
                if kind == "launcher":
                    living = [launcher] if launcher.poll() is None else []
                else:
                    living = find(kind, directory, launcher) if (directory / "provenance.json").exists() else []
                if living:
                    killed[kind] += driving.kill(chance.choice(living).pid)
            if launcher.poll() not in (None, 0):
                again = ["resume", directory] if (directory / "provenance.json").exists() else arguments
                launcher = driving.start(*again, env=env, output=output)
        assert launcher.poll() == 0, (directory.parent / f"{directory.name}.out").read_text()[-3000:]
    return killed


SITE = {"poll_interval_s": 1, "max_pilots": 3}
KEYS = {"name": "storm", "iterations": 3, "warmup_iterations": 1, "params": {"step_s": 0.3}}
GRID = driving.simulated(SITE, **KEYS, nodes=[1, 2], micro_batch_size=[1, 2, 4], tp=[1, 2])


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(100, 120))])
def test_local_storm(tmp_path, seed):
    directory = tmp_path / "s"
    killed = storm(directory, GRID, "local", seed, kills=4)
    assert sum(killed.values()) >= 2, killed
    driving.assert_each_run_measured_once(directory)
    assert driving.wait_until_unmarked(directory) == []


@pytest.mark.slurm
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(200, 210))])
def test_slurm_storm(tmp_path, slurm_cluster, seed):
    directory = tmp_path / "s"
    killed = storm(directory, GRID, "slurm", seed, kills=4, env=slurm_cluster.env)
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
    grid = driving.simulated(SITE, **KEYS, **driving.ONE_LAYOUT, remeasure=0, repeats=200)
    killed = storm(tmp_path / "s", grid, "local", seed, 500, KINDS, limit_s=5000)
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    outcomes = Counter(record["outcome"] for record in records)
    print(f"seed {seed}: killed {dict(killed)}; {outcomes['ok']} runs measured, attempts {dict(outcomes)}")
    assert (killed.total(), outcomes["ok"]) == (500, 200)
    assert driving.wait_until_unmarked(tmp_path / "s") == []
