"""Runs of which only width and tensor parallelism matter."""

import json

from sweep.contract import Run
from sweep.planning.runs import PlannedRun
from tests.support.configurations import run


def planned(number, nodes, tp, seconds=60.0):
    values = run(dp=nodes * 4 // tp, mbs=1) | {"nodes": nodes, "gpus_per_node": 4, "repeat": 0}
    values["layout"] |= {"tp": tp}
    made = Run.from_json(json.dumps(values | {"params": {"number": number}}))
    return PlannedRun(made.run_id, made.model, nodes, seconds, made.canonical_json())
