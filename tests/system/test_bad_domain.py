"""A domain of a real Slurm cluster whose links are slow, or whose nodes reach no others; and a node with slow links.

Each node has a network of its own (tests/support/doctor/switch.py), and ranks exchange gradients over it by gloo: the
kernel limits what a slow node sends, and the switch drops what a cut one sends to others.
"""

import re

import pytest

from sweep.inputs.topology import hosts
from tests.support import driving
from tests.support.doctor.network import network
from tests.support.paths import REPOSITORY

__all__ = ["network"]

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(1500)]

WORKLOAD = """
import time
from sweep.contract import LAYOUT_FIELDS, Measurement, Phase, Workload

WORKLOAD = Workload(
    name="linked", main="linked:main", axes=frozenset({*LAYOUT_FIELDS, "dtype"}),
    takes_listener=True, preload=("torch", "torch.distributed", "bench_workloads.process"),
)


def main(run, progress):
    import torch
    import torch.distributed as dist
    from bench_workloads.process import join

    torch.set_num_threads(1)
    progress.heartbeat(Phase.START)
    join(run.place, torch.device("cpu"), 12.0)
    gradients = torch.zeros(192 * 256)
    alone = 0.02 + 1e-5 * run.global_batch_tokens / run.gpus
    times = []
    for number in range(run.warmup_iterations + run.iterations):
        progress.heartbeat(Phase.STEADY if number else Phase.FIRST_ITERATION, number)
        began = time.perf_counter()
        time.sleep(alone)
        dist.all_reduce(gradients)
        times.append(time.perf_counter() - began)
    effective = {name: getattr(run.layout, name) for name in ("dp", "tp")}
    warm = run.warmup_iterations
    progress.measured(Measurement(
        step_times_s=times[warm:], warmup_times_s=times[:warm], effective=effective,
        extra={"own_time_median_s": alone}))
    progress.heartbeat(Phase.FINISH)
    dist.barrier()
    dist.destroy_process_group()
"""
SLOW = "20mbit"
"""of what a node sends: an exchange of 192 KiB then takes about as long as a step does besides"""


def excluded(tmp_path, cluster, network, monkeypatch, defects, runs=90):
    """Node -> why, at the end of a sweep on nodes with these defects."""
    driving.plug_in(tmp_path, "linked", "linked:WORKLOAD", WORKLOAD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPOSITORY}")
    made = network([f"n{number}" for number in range(1, 9)], defects)
    site = {"pilot_time": "30m", "poll_interval_s": 1, "max_pilots": 1, "domain_nodes": ["n[1,3,5,7]", "n[2,4,6,8]"]}
    site |= {"interface": made.interface, "container_prefix": made.prefix}
    keys = {"models": {"eight": driving.EIGHT}, "strategy": "exhaustive", "nodes": [1, 2, 4, 8], "tp": [1, 2]}
    keys |= {"constraints": ["nodes < 8 or micro_batch_size == 1"], "micro_batch_size": [1, 2, 3, 4, 5, 6, 7, 8]}
    keys |= {"global_batch": 20000, "global_batch_tolerance": 0.99, "iterations": 5, "repeats": 2}
    keys |= {"remeasure": 0, "stop_slow": "off", "budget": {"runs": runs}}
    grid = driving.simulated(site, workload="linked", **keys)
    env = {**cluster.env, "PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    done = driving.launch(tmp_path, grid, executor="slurm", env=env, timeout=1400)
    print(done.stderr[-2000:])
    for record in driving.records_of(tmp_path / "s"):
        print(record["nodes"], record["outcome"], record["step_time_median_s"], record["node_names"], record["message"])
    found = driving.state_of(tmp_path / "s").excluded_nodes
    print(found)
    if driving.state_of(tmp_path / "s").pilots and done.returncode:
        assert f"runs that need them wait: `sweep nodes release {' '.join(sorted(found))}`" in done.stderr
    return found


@pytest.mark.parametrize(
    ("defect", "bad", "said"),
    [
        (SLOW, "n[2,4,6,8]", r"\d+ of \d+ runs were on domain n\[2,4,6,8\] and took \d\.\d\d times as long"),
        ("cut", "n[1,3,5,7]", r"\d+ of \d+ attempts on domain n\[1,3,5,7\] failed, 0 of \d+ elsewhere"),
    ],
)
def test_a_bad_domain_is_named_and_left_out(tmp_path, slurm_cluster, network, monkeypatch, defect, bad, said):
    found = excluded(tmp_path, slurm_cluster, network, monkeypatch, dict.fromkeys(hosts(bad), defect))
    assert set(found) == set(hosts(bad))
    assert all(re.match(said, why) for why in found.values())


def test_a_node_with_slow_links_stays_a_node(tmp_path, slurm_cluster, network, monkeypatch):
    """It may take more runs to be sure of it."""
    found = excluded(tmp_path, slurm_cluster, network, monkeypatch, {"n4": SLOW})
    assert set(found) <= {"n4"}
