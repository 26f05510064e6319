"""Where the allocation went, of real sweeps: each part is where its time was spent, and all are what Slurm counted."""

import json
import os
import random
import re

import pytest
import yaml

from tests.support import driving
from tests.support.paths import REPOSITORY
from tests.support.slurm.cluster import Cluster
from tests.support.trainers.external import paced

DELAYS = {"device": 0.3, "rendezvous": 0.2, "build": 0.4}
WORKLOAD = f"""
import time
from sweep.contract import Measurement, Phase, Workload

AXES = frozenset({{"dp", "micro_batch_size", "grad_accum", "dtype"}})
WORKLOAD = Workload(name="phased", main="phased:main", axes=AXES)


def main(run, progress):
    for seconds in {DELAYS}.values():
        time.sleep(seconds)
        progress.heartbeat(Phase.START)
    times = [0.5] + [0.1] * (run.warmup_iterations + run.iterations - 1)
    for number, seconds in enumerate(times):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        time.sleep(seconds)
    warmup = run.warmup_iterations
    progress.measured(Measurement(
        step_times_s=times[warmup:], warmup_times_s=times[:warmup], phases_s={DELAYS}, effective={{"dp": run.layout.dp}}
    ))
"""
KEYS = {"global_batch": 512, "micro_batch_size": [2, 4], "warmup_iterations": 3, "iterations": 5, "remeasure": 0}


def test_emulated_delays_are_in_their_parts_and_status_and_report_have_the_same(tmp_path, monkeypatch):
    driving.plug_in(tmp_path, "phased", "phased:WORKLOAD", WORKLOAD)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    driving.launched(tmp_path, driving.simulated(workload="phased", **KEYS))
    (found,) = node_time(tmp_path / "s").values()
    spent = {"CUDA context": 0.3, "process groups": 0.2, "model": 0.4, "compilation": 0.4, "warm-up": 0.3}
    for part, seconds in (spent | {"measuring": 0.5}).items():
        assert 2 * seconds <= found[part] + 0.05, part
    for part, seconds in spent.items():
        if part not in ("warm-up", "compilation"):  # these also have what a loaded machine adds
            assert found[part] == pytest.approx(2 * seconds), part
    (state,) = driving.state_of(tmp_path / "s").pilots.values()
    assert sum(found.values()) == pytest.approx(state.ended_at - state.started_at)
    shown = driving.succeeds("status", tmp_path / "s").stdout
    line = next(line for line in shown.splitlines() if line.startswith("node time: "))
    percents = {part: float(share) for part, share in re.findall(r"[:,] ([\w\s-]+?) ([\d.]+)%", line)}
    assert percents == pytest.approx({p: 100 * s / sum(found.values()) for p, s in found.items() if s > 0}, abs=0.06)
    driving.succeeds("report", tmp_path / "s", "--no-figures")
    page = (tmp_path / "s" / "report.html").read_text()
    table = page.partition('id="allocation"')[2].partition("</table>")[0]
    heads = re.findall(r'title="[^"]*">([^<]+)</th>', table)
    cells = re.findall(r'<td class="n">([^<]*)</td>', table)
    assert {h: c for h, c in zip(heads, cells, strict=True) if c} == {p: f"{x:.1f} %" for p, x in percents.items()}


def node_time(directory):
    return json.loads(driving.succeeds("status", directory, "--json").stdout)["node_time_s"]


def assert_accounted(directory, cluster):
    """The parts of all pilots sum to within 1 % of Slurm's accounting, which has whole seconds of each job."""
    driving.succeeds("resume", directory, env=cluster.env, cwd=REPOSITORY, timeout=600)
    cluster.wait_idle()
    driving.succeeds("resume", directory, env=cluster.env, cwd=REPOSITORY, timeout=600)  # notes the jobs' ends
    jobs = {pilot.job_id for pilot in driving.state_of(directory).pilots.values()}
    lines = cluster.run("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o", "JobIDRaw,ElapsedRaw,AllocNodes")
    rows = [line.split("|") for line in lines.splitlines()]
    held = [(int(seconds), int(nodes)) for job, seconds, nodes in rows if job in jobs]
    allocated, rounded = sum(seconds * nodes for seconds, nodes in held), sum(nodes for _, nodes in held)
    found = node_time(directory)
    within = 0.01 * allocated + rounded
    assert sum(sum(parts.values()) for parts in found.values()) == pytest.approx(allocated, abs=within)
    assert all(min(parts.values()) >= 0 for parts in found.values())
    parts = {part: sum(of_pilot.get(part, 0.0) for of_pilot in found.values()) for of in found.values() for part in of}
    print({part: f"{seconds / allocated:.1%}" for part, seconds in parts.items()}, allocated)
    return parts


REPEATED = {"strategy": "guided", **driving.ONE_LAYOUT, "iterations": 9, "repeats": 12, "remeasure": 0}


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(1800)
def test_64_nodes_are_accounted_for(tmp_path, slurm_or_skip):
    runs = {**REPEATED, "nodes": [1, 8, 32], "global_batch": 64 * 32 * 2 * 8, "micro_batch_size": [1, 2, 4]}
    params = {"step_s": 0.4, "one_process_per_node": True}
    grid = driving.simulated({"pilot_time": "20m", "max_pilots": 2}, **runs, params=params)
    with Cluster(nodes=64, gpus_per_node=2, accounting=True) as cluster:
        driving.launch(tmp_path, grid, executor="slurm", env=cluster.env, timeout=1200)
        parts = assert_accounted(tmp_path / "s", cluster)
        assert parts["measuring"] > parts["warm-up"] > 0


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(1800)
def test_sweeps_with_faults_are_accounted_for(tmp_path, slurm_cluster):
    """Some ranks crash and some hang; a job is cancelled from outside, so that its pilot ends without a word."""
    runs = {**REPEATED, "nodes": [1, 2], "global_batch": 64 * 2 * 2 * 4, "micro_batch_size": [1, 2]}
    grid = driving.simulated({"max_pilots": 3, "poll_interval_s": 2}, **runs, params={"step_s": 0.5})
    launcher = driving.launching(tmp_path, grid, executor="slurm", env=slurm_cluster.env)
    driving.wait_for(lambda: (tmp_path / "s" / "journal").exists() and len(driving.records_of(tmp_path / "s")) > 8, 300)
    ranks = [text for text in driving.marked_processes(tmp_path / "s") if "fork_server" in text]
    for text in random.Random(42).sample(ranks, min(3, len(ranks))):
        driving.kill(int(text.split()[0]))
    pilots = driving.state_of(tmp_path / "s").pilots.values()
    running = next(pilot for pilot in pilots if pilot.running)
    slurm_cluster.run("scancel", "--signal=KILL", "--full", running.job_id)
    launcher.wait(600)
    parts = assert_accounted(tmp_path / "s", slurm_cluster)
    assert parts["lost"] + parts["failed"] > 0, "the attempts of the pilot that was killed, and its last moment"


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(1800)
def test_a_foreign_trainer_is_accounted_for(tmp_path, slurm_cluster):
    paces = [0.3, 0.5, 0.8, 1.2, *(round(0.31 + 0.01 * n, 2) for n in range(16))]
    grid, where = yaml.safe_dump(paced(paces, "all")), {"env": slurm_cluster.env, "cwd": REPOSITORY}
    driving.launch(tmp_path, grid, executor="slurm", **where, timeout=1200)
    parts = assert_accounted(tmp_path / "s", slurm_cluster)
    assert parts["stopped"] > 0
