"""The harness itself: what other tests rely on when they start, break and stop a cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.slurm.cluster import REPOSITORY, Cluster, remove_abandoned
from tests.support.slurm.processes import daemons, lives
from tests.support.slurm.services import ClusterError, program, wait_until

pytestmark = pytest.mark.slurm

STUBBORN = """#!/bin/bash
#SBATCH --nodes=2 --exclusive --mem=0 --output={out}
trap '' TERM
srun --ntasks-per-node=1 --overlap sleep 300 &
setsid setsid sleep 301 &
echo started
wait
"""


def test_runs_a_job_and_leaves_nothing(slurm_or_skip: None, tmp_path: Path) -> None:
    with Cluster(nodes=4, gpus_per_node=2) as cluster:
        assert cluster.node_states() == dict.fromkeys(["n1", "n2", "n3", "n4"], "idle")
        out = cluster.run(
            "srun", "-N2", "--gpus-per-node=2", "bash", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
        )
        assert sorted(out.splitlines()) == ["n1 0,1", "n2 0,1"]
        cluster.wait_idle()
        # slurmdbd answers questions that name no job a few seconds late
        assert wait_until(lambda: _accounted(cluster, "1") == ["COMPLETED"], 20), cluster.logs()

        script = tmp_path / "stubborn.sh"
        script.write_text(STUBBORN.format(out=tmp_path / "out"))
        cluster.run("sbatch", str(script))
        assert wait_until(lambda: len(_sleeps(cluster)) == 3, 10), cluster.logs()
        state, sleeps = cluster.state, _sleeps(cluster)
    assert not state.exists()
    assert not [process for process in sleeps if lives(process)]
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(state) in " ".join(p.info["cmdline"] or [])]


def test_death_of_a_node_takes_its_processes_only(slurm_cluster: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2 --exclusive --mem=0 --no-kill --output=/dev/null\n"
        "srun --no-kill --kill-on-bad-exit=0 --ntasks-per-node=1 --overlap sleep 300\n"
    )
    cluster = slurm_cluster
    cluster.wait_idle()
    cluster.run("sbatch", str(script))
    assert wait_until(lambda: len(_sleeps(cluster)) == 2, 10), cluster.logs()
    ((job_id, job),) = [row for row in cluster.squeue().items() if row[1]["state"] == "RUNNING"]
    last = cluster.run("scontrol", "show", "hostnames", job["nodes"]).split()[-1]
    cluster.kill_node(last)
    try:
        assert not cluster.job_processes(last)
        assert len(_sleeps(cluster)) == 1
        assert wait_until(lambda: cluster.node_states()[last].startswith("down"), 40), cluster.logs()
        assert cluster.squeue()[job_id]["state"] == "RUNNING"
    finally:
        cluster.cancel_all()
        cluster.start_slurmd(last)
    assert wait_until(lambda: cluster.node_states()[last] == "idle", 30), cluster.logs()


def test_controller_stops_and_comes_back_with_its_jobs(slurm_cluster_no_accounting: Cluster) -> None:
    cluster = slurm_cluster_no_accounting
    cluster.wait_idle()
    job = cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 60").strip()
    cluster.stop_slurmctld()
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        cluster.squeue()
    cluster.start_slurmctld()
    assert cluster.squeue()[job]["state"] in {"PENDING", "RUNNING"}
    cluster.cancel_all()
    cluster.wait_idle()


def test_a_cluster_that_cannot_start_states_why_and_leaves_nothing(slurm_or_skip: None) -> None:
    cluster = Cluster(nodes=1, accounting=False, extra="SelectType=select/nonsense", start_timeout_s=3)
    with pytest.raises(ClusterError, match=r"(?s)slurmctld answers: not within 3 s.*nonsense"):
        cluster.up()
    assert not cluster.state.exists()


def test_a_killed_test_session_leaves_a_cluster_that_the_next_one_removes(slurm_or_skip: None) -> None:
    code = """
import os, signal
from tests.support.slurm.cluster import Cluster
cluster = Cluster(nodes=1, accounting=False)
cluster.up()
print(cluster.state, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    state = Path(done.stdout.strip())
    assert done.returncode == -signal.SIGKILL
    assert len(daemons(state / "slurm.conf")) == 3, "slurmctld, its helper and one slurmd live on"
    remove_abandoned()
    assert not daemons(state / "slurm.conf")
    assert not state.exists()


def test_another_slurm_than_the_installed_one_can_be_named(
    slurm_or_skip: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix with links to the installed programs: daemons and clients are started from there."""
    names = {"bin": ("sbatch", "srun", "squeue", "scontrol", "sinfo", "scancel"), "sbin": ("slurmctld", "slurmd")}
    for folder, programs in names.items():
        (tmp_path / folder).mkdir()
        for name in programs:
            (tmp_path / folder / name).symlink_to(program(name))
    monkeypatch.setenv("SLURM_PREFIX", str(tmp_path))
    assert program("slurmd") == str(tmp_path / "sbin" / "slurmd")
    with Cluster(nodes=1, accounting=False) as cluster:
        assert {process.cmdline()[0] for process in daemons(cluster.conf, "slurmd")} == {program("slurmd")}
        assert cluster.run("sh", "-c", "command -v sbatch").strip() == str(tmp_path / "bin" / "sbatch")


def _sleeps(cluster: Cluster) -> list[psutil.Process]:
    return [process for process in cluster.job_processes() if process.name() == "sleep"]


def _accounted(cluster: Cluster, job: str) -> list[str]:
    return [row["State"] for row in cluster.sacct() if row["JobID"] == job]
