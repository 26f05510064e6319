"""The pilot's own job: its CPUs and its end."""

import json
import os
import subprocess
import sys

import pytest

from sweep.inputs.site import parse_site
from sweep.physics.hardware import GPUS
from sweep.pilot.job import all_cpus
from sweep.pilot.job_spec import JobSpec
from tests.support import driving
from tests.support.clients import made_client
from tests.support.pilot_parts import spec
from tests.support.slurm.cluster import Cluster

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
CHILD = """
import pathlib, sys
from sweep.pilot.leader.start import lead_once

async def lead(spec, job_id):
    print("leads", flush=True)
    input()

lead_once(pathlib.Path(sys.argv[1]), lead)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_a_leader_ends_its_job_where_the_daemon_above_it_died(tmp_path, dies):
    spec(executor="slurm").write(tmp_path)
    made_client(tmp_path / "scancel", f'[ -n "$SCANCEL_INTERACTIVE" ] || echo $1 > {tmp_path}/cancelled')
    above = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(tmp_path)],
        env={**os.environ, "SLURM_JOB_ID": "7", "SCANCEL_INTERACTIVE": "1", "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert above.stdout.readline() == "leads\n"
    if dies:
        above.kill()
        above.wait()
    above.stdin.write("\n")
    above.stdin.flush()
    assert above.stdout.read() == ""
    above.wait()
    assert (tmp_path / "cancelled").exists() is dies


def test_a_job_whose_directory_is_another_sweeps_by_now_leads_nothing(tmp_path):
    spec(executor="slurm").write(tmp_path)
    env = {**os.environ, "SLURM_JOB_ID": "7", "SWEEP_PILOT": "an-earlier-sweep-p0001"}
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "this job is an-earlier-sweep-p0001" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


@pytest.mark.parametrize(
    ("environment", "option"),
    [
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8(x4)"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8(x2),8"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8"}, ["--cpus-per-task=8"]),
        ({"SLURM_CPUS_ON_NODE": "8", "SLURM_JOB_CPUS_PER_NODE": "8(x3),4"}, []),
        ({}, []),
    ],
)
def test_one_number_only_where_all_nodes_have_it(environment, option):
    assert all_cpus(environment) == option


@pytest.mark.slurm
def test_a_pilot_over_nodes_that_differ(tmp_path, slurm_or_skip):
    """The first node has 8 CPUs, the second 4: with the first's number the second agent would not start."""
    with Cluster(nodes=2, accounting=False, cpus_of={"n2": 4}) as cluster:
        driving.launched(tmp_path, driving.slow(0.01, nodes=2), executor="slurm", env=cluster.env)
        shown = cluster.run("scontrol", "show", "node", "n2")
        assert "CPUTot=4" in shown, shown
    records = driving.assert_each_run_measured_once(tmp_path / "s")
    assert {record["outcome"] for record in records} == {"ok"}


def test_a_pilot_predicts_by_all_that_the_site_knows_of_its_hardware(tmp_path):
    text = "gpu: gb200\ngpus_per_node: 4\ngpu_memory_gb: 150\ndomain_nodes: ['n[1-18]']\n"
    site = parse_site(text, "site.yaml")
    spec(hardware=site.hardware, gpu=site.gpu).write(tmp_path)
    assert JobSpec.read(tmp_path).hardware == site.hardware
    written = json.loads((tmp_path / "job.json").read_text()) | {"hardware": None}
    (tmp_path / "job.json").write_text(json.dumps(written))
    assert JobSpec.read(tmp_path).hardware == GPUS[site.gpu], "a spec without: what is known of its kind"
