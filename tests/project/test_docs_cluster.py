"""The tutorial in docs/cluster.md, executed on a real Slurm; what a cluster without GPUs cannot have is replaced.

Its runs are simulated: tests/system/test_slurm.py trains on Slurm.
"""

import contextlib
import json
import re
import shlex

import pytest
import yaml

from tests.support import driving
from tests.support.paths import REPOSITORY

PAGE = (REPOSITORY / "docs" / "cluster.md").read_text()
COMMANDS = re.findall(r"(?m)^\$ (sweep .*)$", PAGE)
SMALLER = {
    "workload": "simulated",
    "models": ["tiny-1M"],
    "nodes": [1, 2],
    "sequence_length": 32,
    "global_batch": 1024,
    "micro_batch_size": [2, 4],
    "dtype": "fp32",
    "iterations": 3,
    "params": {"step_s": 0.05, "speed": 10},
    "finalists": 0,
}
"""replaces what `sweep init` proposes for GPUs"""


@pytest.fixture(scope="module")
def described(slurm_cluster, tmp_path_factory):
    """A working directory after `sweep init`, with a grid and a site that CPUs can run."""
    folder = tmp_path_factory.mktemp("shared")
    (init,) = [command for command in COMMANDS if command.startswith("sweep init")]
    done = driving.run(*shlex.split(init)[1:], cwd=folder, env=slurm_cluster.env)
    assert done.returncode == 0, done.stderr
    site = yaml.safe_load((folder / "first/site.yaml").read_text())
    assert (site["gpu"], site["gpus_per_node"], site["partition"]) == ("h100", 2, slurm_partition(slurm_cluster))
    (folder / "first/site.yaml").write_text(yaml.safe_dump({**site, "gpu": "cpu", "poll_interval_s": 1}))
    name = yaml.safe_load((folder / "first/grid.yaml").read_text())["name"]
    (folder / "first/grid.yaml").write_text(yaml.safe_dump({"name": name, **SMALLER}))
    return folder


def slurm_partition(cluster):
    return re.search(r"PartitionName=(\w+)", cluster.conf.read_text())[1]


def end(process):
    process.kill()
    process.wait()


@pytest.mark.slurm
@pytest.mark.timeout(600)
def test_the_cluster_tutorial_leads_to_a_heatmap(described, slurm_cluster):
    after_init = COMMANDS[COMMANDS.index(next(c for c in COMMANDS if c.startswith("sweep init"))) + 1 :]
    assert [shlex.split(command)[1] for command in after_init] == [
        *("plan", "launch", "launch", "launch", "status", "resume", "report"),
    ]
    with contextlib.ExitStack() as started:
        for command in after_init:
            words = shlex.split(command)[1:]
            if "--watch" in words:  # in a second terminal: only a launcher submits a pilot for what must be retried
                watching = driving.start(*words, cwd=described, env=slurm_cluster.env)
                started.callback(end, watching)
                continue
            done = driving.run(*words, cwd=described, env=slurm_cluster.env, timeout=280)
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
            if "--dry-run" in command:
                assert "#SBATCH" in done.stdout
                assert not (described / "sweeps").exists()
        assert watching.wait(60) == 0
    for name, runs in (("smoke", 4), ("first", 4)):
        records = driving.records_of(described / "sweeps" / name)
        assert [record["outcome"] for record in records].count("ok") == runs
    counts = driving.run("status", "sweeps/first", "--json", cwd=described, env=slurm_cluster.env)
    assert json.loads(counts.stdout)["counts"] == {"ok": 4}
    assert (described / "sweeps/first/figures/heatmap.png").read_bytes().startswith(b"\x89PNG")
    assert (described / "sweeps/first/report.html").is_file()
