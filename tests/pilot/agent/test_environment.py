"""What ranks see: of the scheduler's variables none of the agents' task, or their own place; a share of the cores."""

import asyncio
import itertools
import json
import os

import pytest
from msgspec.structs import replace

from sweep.pilot.agent.agent import Agent
from sweep.pilot.agent.attempt import compile_workers
from sweep.pilot.messages import RankExited
from tests.support import driving
from tests.support.pilot_parts import PREPARE, Image, Scripted, start

SIZES = {"nodes": 2, "global_batch": 1024, "dp": 4, "micro_batch_size": 1, "iterations": 2, "warmup_iterations": 1}
PROGRAM = """
import json, os, pathlib, time
seen = {name: value for name, value in os.environ.items() if name.split("_")[0] in ("SLURM", "PMI", "PMI2", "PMIX")}
pathlib.Path(OUT, os.environ["RANK"]).write_text(json.dumps(seen))
for step in range(8):
    print("step", step, flush=True)
    time.sleep(0.1)
"""


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


@pytest.fixture
def started(tmp_path, monkeypatch):
    """What an agent gives the processes that it starts for a message."""
    image = Image()
    monkeypatch.setattr("sweep.pilot.agent.fork_servers.ForkServer", image)

    def environments(message):
        asyncio.run(Agent("n2", 1, tmp_path).serve(Scripted(PREPARE, message, until=RankExited)))
        return [request.env for request in image.requests]

    return environments


def test_a_workload_that_asks_for_them_gets_the_variables_of_a_task_per_rank(started):
    """Lightning's check with these: SLURM_NTASKS = nodes x devices, and SLURM_NTASKS_PER_NODE = devices."""
    environments = started(replace(start(2), slurm_variables=True))
    found = [{name: value for name, value in one.items() if name.startswith("SLURM_")} for one in environments]
    same = {"SLURM_NODEID": "1", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_NTASKS_PER_NODE": "2"}
    same |= {"SLURM_NNODES": "2"}
    assert found == [same | {"SLURM_PROCID": f"{2 + local}", "SLURM_LOCALID": f"{local}"} for local in (0, 1)]


COMMON = {
    "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "5",
}  # fmt: skip


@pytest.mark.parametrize(
    ("one_process", "own"),
    [(False, [{"RANK": "2", "LOCAL_RANK": "0"}, {"RANK": "3", "LOCAL_RANK": "1"}]), (True, [{}])],
)
def test_a_process_of_several_ranks_has_no_rank_in_its_environment(started, one_process, own):
    names = {"RANK", "LOCAL_RANK", *COMMON}
    environments = started(start(2, one_process=one_process))
    assert [{name: one[name] for name in names & set(one)} for one in environments] == [COMMON | one for one in own]


def test_ranks_get_this_nodes_temporary_directory_whatever_tmpdir_is_and_the_users_other_settings(started, monkeypatch):
    """The user's TMPDIR is the login node's, and would not be emptied after the attempt."""
    monkeypatch.setenv("TMPDIR", "/home/user/tmp")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/home/user/kernels")
    (environment,) = started(start())
    assert environment["TMPDIR"] != "/home/user/tmp"
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/home/user/kernels"


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
