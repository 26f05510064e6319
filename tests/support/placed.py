"""Runs of which only width and tensor parallelism matter."""

from tests.support.configurations import run
from tests.support.made_events import planned_as


def planned(number, nodes, tp, seconds=60.0):
    values = run(dp=nodes * 4 // tp, mbs=1) | {"nodes": nodes, "gpus_per_node": 4, "repeat": 0}
    values["layout"] |= {"tp": tp}
    return planned_as(values | {"params": {"number": number}}, seconds)
