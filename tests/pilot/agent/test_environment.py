"""What ranks see: of the scheduler's variables none of the agents' task, or their own place; a share of the cores."""

import itertools
import json
import os

import pytest

from sweep.pilot.agent.attempt import compile_workers
from tests.support import driving
from tests.support.paths import REPOSITORY

SIZES = {"nodes": 2, "global_batch": 1024, "dp": 4, "micro_batch_size": 1, "iterations": 2, "warmup_iterations": 1}
PROGRAM = """
import json, os, pathlib, time
seen = {name: value for name, value in os.environ.items() if name.split("_")[0] in ("SLURM", "PMI", "PMI2", "PMIX")}
pathlib.Path(OUT, os.environ["RANK"]).write_text(json.dumps(seen))
for step in range(8):
    print("step", step, flush=True)
    time.sleep(0.1)
"""
AGENTS = {
    "SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", "PMI_RANK": "1",
    "PMI_SIZE": "2", "PMIX_RANK": "1", "PMI2_X": "1", "SLURM_CPU_BIND": "quiet",
}  # fmt: skip


@pytest.mark.slurm
def test_ranks_of_a_real_step_see_the_job_and_no_task(tmp_path, slurm_cluster):
    seen = tmp_path / "seen"
    seen.mkdir()
    (tmp_path / "program.py").write_text(PROGRAM.replace("OUT", repr(str(seen))))
    params = {"command": f"python {tmp_path / 'program.py'}", "metrics": "iteration: step ([0-9]+)"}
    grid = driving.simulated({"poll_interval_s": 1}, **SIZES, workload="command", params=params)
    driving.launched(tmp_path, grid, env=slurm_cluster.env, executor="slurm")
    found = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
    assert sorted(found) == list("0123")
    assert {*itertools.chain(*found.values())} <= {"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME"}


PLUG_IN = """
import json, os, pathlib
from sweep.contract import Measurement, Workload
AXES = frozenset({"dp", "dtype", "micro_batch_size", "grad_accum"})
WORKLOAD = Workload(name="asks_slurm", main="asks_slurm:main", axes=AXES, slurm_variables=True)

def main(run, progress):
    seen = {name: value for name, value in os.environ.items() if name.startswith(("SLURM_", "PMI"))}
    pathlib.Path(os.environ["SEEN"], str(run.place.rank)).write_text(json.dumps(seen))
    progress.measured(Measurement(step_times_s=[0.1, 0.1]))
"""


def test_a_workload_that_asks_for_them_gets_the_variables_of_a_task_per_rank(tmp_path):
    """Lightning's check with these: SLURM_NTASKS = nodes x devices, and SLURM_NTASKS_PER_NODE = devices."""
    seen = tmp_path / "seen"
    seen.mkdir()
    driving.plug_in(tmp_path / "p", "asks_slurm", "asks_slurm:WORKLOAD", PLUG_IN)
    env = {**AGENTS, "SEEN": str(seen), "PYTHONPATH": f"{tmp_path / 'p'}:{REPOSITORY}"}
    driving.launched(tmp_path, driving.simulated(**SIZES, workload="asks_slurm"), env=env)
    found = {path.name: json.loads(path.read_text()) for path in seen.iterdir()}
    assert found["3"] == {
        "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4",
        "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "2",
    }  # fmt: skip
    assert [found[rank]["SLURM_PROCID"] for rank in "0123"] == list("0123")


NAME = "TORCHINDUCTOR_COMPILE_THREADS"


@pytest.mark.parametrize(
    ("cores", "ranks", "given", "workers"),
    [(96, 8, None, "12"), (96, 1, None, "32"), (4, 8, None, "1"), (16, 1, None, "16"), (96, 8, "3", "3")],
)
def test_ranks_share_the_cores_unless_the_user_states_a_number(monkeypatch, cores, ranks, given, workers):
    monkeypatch.delenv(NAME, raising=False)
    if given:
        monkeypatch.setenv(NAME, given)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))
    assert compile_workers(ranks) == {NAME: workers}
