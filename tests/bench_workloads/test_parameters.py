"""The common base of all workloads' settings."""

import importlib
from dataclasses import replace

import pytest

from sweep.contract import LAYOUT, Layout, Place, Run

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


@pytest.mark.parametrize("workload", ["transformer", "simulated"])
def test_the_own_workloads_vary_the_whole_layout(workload):
    declared = importlib.import_module(f"bench_workloads.{workload}").WORKLOAD
    assert declared.axes >= {*LAYOUT, "dtype", "compile"}


def test_torchruns_variables_name_the_rank_and_where_it_meets_the_others():
    place = Place(
        rank=5, world_size=8, local_rank=1, local_world_size=4, node_rank=1, master_addr="a", master_port=20001
    )
    variables = place.torchrun_variables()
    assert variables == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "20001",
    }
    several = replace(place, ranks_in_process=2).torchrun_variables()
    assert several == {name: variables[name] for name in variables if name not in ("RANK", "LOCAL_RANK")}
