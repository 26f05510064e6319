"""Precision, experts, overlap and partial recomputation as axes: what is one run, what is rejected, and by what."""

import json

import pytest

from sweep.contract import FURTHER, Layout, Run, Workload
from sweep.planning.effects import GENERAL
from sweep.plugins import WORKLOAD
from tests.support.made_plans import plan_of

DENSE = """
models: [Llama-3-8B]
nodes: 1
sequence_length: 4096
global_batch: 1Mi
workload: simulated
site: {gpu: b200, gpus_per_node: 8}
"""
EXPERTS = DENSE.replace("Llama-3-8B", "Qwen3-30B-A3B")


def plan(text: str, workload: Workload | None = None):
    return plan_of(text, workload)


def layouts(text: str) -> list[dict]:
    """What the runs state beyond the fields that every run has."""
    runs = [json.loads(run.run_json)["layout"] for run in plan(text).runs]
    return sorted(({k: v for k, v in run.items() if k in FURTHER or k in ("pp", "tp", "ep")} for run in runs), key=str)


def why(text: str) -> set[str]:
    return {reason for row in plan(text).table.column("reasons").to_pylist() for reason in row}


def test_a_field_at_its_default_is_not_in_the_json_and_comes_back():
    layout = Layout(dispatcher="deepep", fp8_params=True)
    run = Run(workload="w", model="m", shape={}, nodes=1, gpus_per_node=1, sequence_length=1, layout=layout)
    stated = json.loads(run.canonical_json())["layout"]
    assert {k: v for k, v in stated.items() if k in FURTHER} == {"dispatcher": "deepep", "fp8_params": True}
    assert Run.from_json(run.canonical_json()) == run


def test_the_ids_of_a_plan_are_those_of_its_runs():
    found = plan(
        EXPERTS + "ep: [1, 2]\ndispatcher: [alltoall, deepep]\ndtype: [bf16, mxfp8]\nfp8_params: [true, false]"
    )
    assert len(found.runs) == 9
    assert all(run.run().run_id == run.run_id for run in found.runs)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            DENSE + "etp: [1, 2]\nrouting: [balanced, natural]\ndispatcher: [deepep, alltoall]",
            [{"tp": 1, "pp": 1, "ep": 1}],
        ),
        (
            EXPERTS + "tp: [1, 2]\ntp_overlap: [true, false]",
            [
                {"tp": 1, "pp": 1, "ep": 1},
                {"tp": 2, "pp": 1, "ep": 1, "tp_overlap": True},
                {"tp": 2, "pp": 1, "ep": 1},
            ],
        ),
        (
            DENSE + "pp: [1, 2]\nvirtual_stages: [2, 4, 8]\npp_schedule: interleaved_1f1b",
            [
                {"tp": 1, "pp": 1, "ep": 1},
                *({"tp": 1, "pp": 2, "ep": 1, "virtual_stages": v} for v in (2, 4, 8)),
            ],
        ),
        (
            DENSE + "pp: [1, 2]\nvirtual_stages: 4\npp_schedule: interleaved_1f1b",
            [{"tp": 1, "pp": 1, "ep": 1}, {"tp": 1, "pp": 2, "ep": 1, "virtual_stages": 4}],
        ),
        (
            DENSE + "recompute: [none, full]\nrecompute_layers: [2, 0]",
            [
                {"tp": 1, "pp": 1, "ep": 1},
                {"tp": 1, "pp": 1, "ep": 1},
                {"tp": 1, "pp": 1, "ep": 1, "recompute_layers": 2},
            ],
        ),
    ],
)
def test_what_differs_by_an_axis_without_effect_is_one_run(text, found):
    assert layouts(text) == sorted(found, key=str)


def test_where_an_axis_has_an_effect():
    plain = {"pp": 1, "ep": 1, "tp": 1, "num_experts": 0, "recompute": "none", "dtype": "bf16"}
    places = {
        "pp_schedule": [{"pp": 2}], "virtual_stages": [{"pp": 2}], "pipeline_layout": [{"pp": 2}],
        "recompute_modules": [{"recompute": "selective"}],
        "recompute_layers": [{"recompute": "selective"}, {"recompute": "full"}],
        "etp": [{"num_experts": 1}], "routing": [{"num_experts": 1}],
        "dispatcher": [{"ep": 2}], "ep_overlap": [{"ep": 2}], "tp_overlap": [{"tp": 2}],
        "fp8_params": [{"dtype": "fp8"}, {"dtype": "fp4"}, {"dtype": "mxfp8"}],
    }  # fmt: skip
    assert places.keys() == GENERAL.keys()
    for name, condition in GENERAL.items():
        others = [place for other in places.values() for place in other if place not in places[name]]
        assert all(condition(plain | place) for place in places[name]), name
        assert not any(condition(plain | place) for place in [{}, *others]), name


def test_an_included_point_that_differs_by_an_axis_without_effect_is_no_further_run():
    assert len(plan(DENSE + "include: [{routing: balanced}, {virtual_stages: 4}, {tp: 2, tp_overlap: true}]").runs) == 2


def test_a_workload_says_where_its_own_parameter_has_an_effect():
    effects = {"speed": lambda c: c["recompute"] == "full"}
    base = WORKLOAD.find("simulated")
    own = Workload(
        name="simulated", main=base.main, axes=base.axes, params=base.params, choices=base.choices, effects=effects
    )
    text = DENSE + "recompute: [none, full]\nparams: {speed: [2.0, 3.0]}"
    found = sorted((run.run().layout.recompute, run.run().params["speed"]) for run in plan(text, own).runs)
    assert found == [("full", 2.0), ("full", 3.0), ("none", base.params["speed"])]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (EXPERTS + "ep: 8\netp: 2", "etp_by_replicas: ep*etp = 8*2 does not divide dp*cp*tp = 8*1*1"),
        (EXPERTS + "etp: 5", "experts_by_etp: etp=5 does not divide an expert's width of 768"),
        (DENSE + "pp: 2\nvirtual_stages: 2", "virtual_stages_by_schedule: virtual_stages=2 needs a looped schedule"),
        (DENSE + "recompute: full\nrecompute_layers: 32", "recompute_layers_by_stages: recompute_layers=32 are all of"),
        (DENSE.replace("b200", "h100") + "dtype: mxfp8", "dtype_by_gpu: the h100 has no matrix products in mxfp8"),
        (DENSE.replace("b200", "a100") + "dtype: fp8_delayed", "dtype_by_gpu: the a100 has no"),
        (
            EXPERTS.replace("b200", "l40s") + "ep: 8\ndispatcher: deepep",
            "dispatcher_by_gpu: dispatcher=deepep, which n",
        ),
        (
            EXPERTS.replace("b200", "gb200") + "ep: 8\ndispatcher: deepep",
            "dispatcher_by_gpu: dispatcher=deepep, which i",
        ),
        (
            DENSE.replace("simulated", "picotron") + "dtype: bf16\ncuda_graphs: attn",
            "cuda_graphs_not_varied: ",
        ),
    ],
)
def test_what_cannot_run_is_rejected_with_the_reason(text, reason):
    assert not plan(text).runs
    assert any(found.startswith(reason) for found in why(text)), why(text)


@pytest.mark.parametrize(("ep", "split", "rejected"), [
    (2, "reject", True), (2, "mark", False), (1, "reject", False), ("1\netp: 16", "reject", False),
])  # fmt: skip
def test_a_group_wider_than_a_domain_is_rejected_where_the_grid_says_so(ep, split, rejected):
    text = EXPERTS.replace("8}", "4, domain_nodes: ['a[1-2]', 'b[1-2]']}").replace("nodes: 1", "nodes: 4")
    found = {reason for reason in why(text + f"tp: 8\nep: {ep}\nsplit: {split}") if reason.startswith("split")}
    assert found == ({"split: a group of tp=8 or ep=2 (etp=0) is wider than a domain of 8 GPUs (split: reject)"}
                     if rejected else set())  # fmt: skip


def test_one_stage_per_rank_beside_others_is_no_looped_schedule():
    text = DENSE + "pp: 2\npp_schedule: [1f1b, interleaved_1f1b]\nvirtual_stages: [1, 2]"
    found = {(run.run().layout.pp_schedule, run.run().layout.virtual_stages) for run in plan(text).runs}
    assert found == {("1f1b", 1), ("interleaved_1f1b", 2)}
