"""The step of a pilot's agents: what srun is asked for."""

import os

from sweep.pilot.leader.nodes import start_agents
from tests.support.clients import made_client
from tests.support.pilot_parts import spec


def test_the_step_has_no_mpi_and_survives_the_oom_of_one_rank(tmp_path, monkeypatch):
    """Captured: one of Slurm's newer versions, whose OOMKillStep this acts on, does not run here."""
    made_client(tmp_path / "srun", 'printf "%s\\n" "$@"\nenv')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_OOM_KILL_STEP", "1")  # as sbatch sets it for the job's steps
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    (process,) = start_agents(spec(executor="slurm", nodes=3, srun=("--container-image=x",)), tmp_path)
    process.wait(20)
    output = (tmp_path / "agents.log").read_text().splitlines()
    assert output[: output.index("--container-image=x") + 1] == [
        *("--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--mpi=none", "--no-kill", "--kill-on-bad-exit=0"),
        *("--wait=0", "--cpu-bind=none", "--mem=0", "--unbuffered", "--container-image=x"),
    ]
    assert "SLURM_OOM_KILL_STEP=0" in output
