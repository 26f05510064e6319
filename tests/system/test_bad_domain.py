"""A domain of a real Slurm cluster whose links are slow, or whose nodes are cut off from each other together.

The ranks themselves inject the fault, by the node that they find themselves on.
"""

import os
import re

import pytest

from sweep.inputs.topology import hosts
from tests.support import driving

pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.timeout(900)]

WORKLOAD = """
import os, sys, time
from sweep.contract import LAYOUT_FIELDS, Measurement, Phase, Workload
from sweep.inputs.topology import hosts

WORKLOAD = Workload(
    name="linked", main="linked:main", axes=frozenset({*LAYOUT_FIELDS, "dtype"}), params={"bad": "", "fault": ""},
)


def main(run, progress):
    hit = run.nodes > 1 and os.environ["SWEEP_NODE"] in hosts(run.params["bad"])
    progress.heartbeat(Phase.FIRST_ITERATION, 0)
    if hit and run.params["fault"] == "cut":
        print(f"[rank{run.place.rank}]: torch.distributed.DistBackendError: NCCL error in: "
              "ProcessGroupNCCL.cpp:3690, unhandled system error, NCCL version 2.27.5", file=sys.stderr, flush=True)
        os._exit(1)
    alone = 0.01 + 2e-5 * run.global_batch_tokens / run.gpus
    times = []
    for _ in range(run.iterations + 2):
        began = time.perf_counter()
        time.sleep(alone * (1.6 if hit and run.params["fault"] == "slow" else 1))
        times.append(time.perf_counter() - began)
    effective = {name: getattr(run.layout, name) for name in ("dp", "tp")}
    progress.measured(Measurement(
        step_times_s=times[2:], warmup_times_s=times[:2], effective=effective, extra={"own_time_median_s": alone}))
"""
GRID = """
name: bad
workload: linked
models: {{eight: {{num_layers: 2, hidden_size: 64, num_heads: 8, intermediate_size: 128, vocab_size: 512}}}}
strategy: exhaustive
nodes: [1, 2, 4, 8]
constraints: ["nodes < 8 or micro_batch_size == 1"]
sequence_length: 64
global_batch: 20000
global_batch_tolerance: 0.99
dtype: [fp32]
tp: [1, 2]
micro_batch_size: [1, 2, 3, 4, 5, 6, 7, 8]
remeasure: 0
iterations: 5
repeats: 2
stop_slow: off
budget: {{runs: {runs}}}
params: {{bad: "{bad}", fault: {fault}}}
site:
  gpu: cpu
  gpus_per_node: 2
  pilot_time: 30m
  poll_interval_s: 1
  max_pilots: 1
  domain_nodes: ["n[1,3,5,7]", "n[2,4,6,8]"]
"""


@pytest.mark.parametrize(
    ("fault", "bad", "said"),
    [
        ("slow", "n[2,4,6,8]", r"\d+ of \d+ runs were on domain n\[2,4,6,8\] and took 1\.\d\d times as long"),
        ("cut", "n[1,3,5,7]", r"\d+ of \d+ attempts on domain n\[1,3,5,7\] failed, 0 of \d+ elsewhere"),
    ],
)
def test_a_bad_domain_is_named_and_left_out(tmp_path, slurm_cluster, monkeypatch, fault, bad, said):
    (tmp_path / "linked.py").write_text(WORKLOAD)
    info = tmp_path / "linked-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: linked\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[sweep.workloads]\nlinked = linked:WORKLOAD\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    grid = GRID.format(runs=90, bad=bad, fault=fault)
    done = driving.launch(tmp_path, grid, executor="slurm", env=slurm_cluster.env, timeout=800)
    print(done.stderr[-2000:])
    excluded = driving.state_of(tmp_path / "s").excluded_nodes
    print(excluded)
    assert set(excluded) == set(hosts(bad))
    assert all(re.match(said, why) for why in excluded.values())
