"""A sweep that stands, and parts of a pilot, for tests of what may befall them."""

import pytest

from sweep.contract import Workload
from sweep.diagnose.model import Diagnosis
from sweep.inputs.load import parse_grid
from sweep.pilot.leader.attempt import AttemptRunner
from sweep.pilot.leader.attempt_result import AttemptResult, RankReport
from sweep.pilot.leader.record import Conducted
from sweep.pilot.limits import Limits
from sweep.pilot.order import PilotOrder
from sweep.plan.build import build
from sweep.store.sweep import create

GRID = """\
name: edges
workload: simulated
models: [tiny-1M]
nodes: [1]
sequence_length: 64
global_batch: 1024
dtype: [fp32]
micro_batch_size: [1, 2]
params: {step_s: 0.02}
site: {gpu: cpu, gpus_per_node: 2, pilot_time: 10m}
"""


@pytest.fixture
def standing(tmp_path):
    grid = parse_grid(GRID, "grid.yaml")
    return create(tmp_path / "s", grid, grid.site, build(grid, grid.site), executor="local", grid_text=GRID)


def a_run(standing):
    return standing.runs[0].run()


class Mute:
    """An agent's line on which nothing is heard and everything said is kept."""

    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


def runner_on(standing, *links):
    workload = Workload(name="w", main="none:main", axes={})
    run = a_run(standing)
    return AttemptRunner("r.1", run, workload, links, Limits(), 0)


def order(**changes):
    values = {"name": "p0001", "token": "t", "sweep_name": "edges", "nodes": 1, "gpus_per_node": 2, "gpu": "cpu"}
    values |= {"time_limit_s": 1000, "executor": "local", "scratch": "/tmp"}
    return PilotOrder(**{**values, **changes})


def conducted(standing, limit_s=900.0):
    return Conducted(
        run=a_run(standing),
        attempt=1,
        order=order(),
        job_id="7",
        nodes=("local-0",),
        started_at=1.0,
        idle_s=0.5,
        limit_s=limit_s,
        beside={"other.1"},
    )


def result_of(outcome, measurement=None):
    ranks = [RankReport("local-0", measurement=measurement) for _ in range(2)]
    return AttemptResult(Diagnosis(outcome, "", "", None, None), "why", ranks, {"total_s": 1.0})
