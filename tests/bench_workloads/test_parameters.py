"""The common base of all workloads' settings."""

import importlib

import pytest

from sweep.contract import Layout, Run
from tests.support.simulated import place

RUN = {"model": "m", "shape": {}, "nodes": 1, "gpus_per_node": 1, "sequence_length": 8, "layout": Layout()}


@pytest.mark.parametrize("workload", ["transformer", "simulated"])
def test_a_run_gives_parameters_and_defaults_the_rest(workload):
    package = importlib.import_module(f"bench_workloads.{workload}")
    declared, settings = package.WORKLOAD, package.Settings
    assert settings.of(Run(workload=workload, **RUN)) == settings()
    assert settings.defaults() == declared.params == vars(settings())
    name, value = next(iter(settings.defaults().items()))
    assert settings.of(Run(workload=workload, params={name: value}, **RUN)) == settings()
    with pytest.raises(ValueError, match=f"{workload} has no parameter colour, size"):
        settings.of(Run(workload=workload, params={"size": 1, "colour": 2}, **RUN))


def test_of_several_ranks_in_a_process_torchruns_variables_name_none():
    """What they are for one: trainers/test_rank_order.py."""
    one, several = (place(5, 8, ranks_in_process=ranks).torchrun_variables() for ranks in (1, 2))
    assert several == {name: one[name] for name in one if name not in ("RANK", "LOCAL_RANK")}
    assert len(several) == len(one) - 2
