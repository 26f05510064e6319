"""Axes of a grid: what auto tries, parameters and variables, points included and excluded."""

from dataclasses import replace

import pytest

from sweep.errors import SweepError
from sweep.planning import expand
from tests.support.made_plans import ANY, AXES, BASE, SHAPE, plan_of, reasons


def test_auto_axes():
    text = (
        BASE.replace("nodes: [1]", "nodes: [2]") + "tp: auto\npp: auto\nzero: auto\nmicro_batch_size: auto\ncp: auto\n"
    )
    text += "recompute: auto\ncompile: auto\ndtype: auto\nep: auto\n"
    rows = plan_of(text).table.to_pylist()
    assert {row["tp"] for row in rows} == {1, 2, 3, 6}
    assert {row["pp"] for row in rows} == {1, 2, 3, 4, 6, 12}
    assert {row["cp"] for row in rows} == {1, 2, 4}
    assert {row["zero"] for row in rows} == {0, 1, 2, 3}
    assert {row["micro_batch_size"] for row in rows} == set(range(1, 17))
    assert {row["recompute"] for row in rows} == {"none", "selective", "full"}
    assert {row["compile"] for row in rows} == {False, True}
    assert {row["dtype"] for row in rows} == {"bf16", "fp32"}
    assert {row["ep"] for row in rows} == {1}
    across = plan_of(text + "tp_across_nodes: true\n")
    assert {row["tp"] for row in across.table.to_pylist()} == {1, 2, 3, 4, 6, 12}
    assert not any(reason.startswith("tp_within_node") for reason in reasons(across))


def test_what_a_grid_omits_or_a_workload_lacks_has_its_default():
    other = replace(ANY, axes=AXES - {"cp"}, compiles_on_gpu=True)
    rows = plan_of(BASE.replace("num_layers: 12", "num_layers: 4") + "cp: auto\npp: auto\n", other).table.to_pylist()
    assert {(row["cp"], row["compile"]) for row in rows} == {(1, True)}
    assert {row["pp"] for row in rows} == {1, 2, 3}, "no more stages than layers"
    on_cpus = plan_of(BASE.replace("h100", "cpu"), other).table.to_pylist()
    assert {row["compile"] for row in on_cpus} == {False}


@pytest.mark.parametrize(("gpu", "nodes", "widest"), [("gb200", 16, 64), ("gb300", 32, 64), ("b200", 16, 4)])
def test_auto_tp_reaches_as_far_as_the_nvlink_domain(gpu, nodes, widest):
    """Of 72 GPUs, though a node has four: up to 18 nodes of it."""
    text = f"models: [70B]\nsequence_length: 4096\nglobal_batch: 4Mi\nsite: {{gpu: {gpu}, gpus_per_node: 4}}\n"
    plan = plan_of(text + f"nodes: {nodes}\ntp: auto\n")
    tried = {row["tp"]: [reason.partition(":")[0] for reason in row["reasons"]] for row in plan.table.to_pylist()}
    assert max(tried) == widest
    assert not any("tp_within_node" in rules for rules in tried.values())
    wider = plan_of(text + "nodes: 32\ntp: 128\n")
    where = "a node of 4" if gpu == "b200" else "the NVLink domain of 72"
    assert f"tp_within_node: tp=128 is wider than {where} GPUs (tp_across_nodes: true allows it)" in reasons(wider)


def test_experts():
    text = BASE.replace(SHAPE, "tiny-moe").replace("gpus_per_node: 6", "gpus_per_node: 8").replace("3072", "4096")
    assert {p.run().layout.ep for p in plan_of(text + "ep: auto\n").runs} == {1, 2, 4, 8}
    assert "experts_by_ep: ep=3 does not divide the 8 experts" in reasons(plan_of(text + "ep: [1, 3]\n"))
    piped = plan_of(text + "ep: [1, 8]\npp: 2\n")
    assert "ep_by_replicas: ep=8 does not divide dp*cp*tp = 4*1*1" in reasons(piped)


def test_weak_scaling_gives_each_gpu_the_same():
    text = BASE.replace("global_batch: 3072", "tokens_per_gpu: 512").replace("nodes: [1]", "nodes: [1, 2, 4]")
    assert {p.nodes: p.run().global_batch_tokens for p in plan_of(text).runs} == {1: 3072, 2: 6144, 4: 12288}


def test_parameters_and_variables_are_axes_and_columns():
    text = BASE + "params: {optimizer: [adamw, sgd], width: [1, 2.5], fused: true}\nenv: {ALGO: [Ring, Tree]}\n"
    text += "constraints: [\"optimizer == 'sgd' or ALGO in ['Ring']\", 'width < 2 or not fused or tp == 1']\n"
    runs = [planned.run() for planned in plan_of(text).runs]
    assert {(r.params["optimizer"], r.params["width"], r.env["ALGO"]) for r in runs} == {
        ("adamw", 1, "Ring"), ("adamw", 2.5, "Ring"),
        ("sgd", 1, "Ring"), ("sgd", 1, "Tree"), ("sgd", 2.5, "Ring"), ("sgd", 2.5, "Tree"),
    }  # fmt: skip
    assert all(r.params["fused"] is True for r in runs)


def test_a_placement_is_an_axis_that_no_other_run_knows():
    plain = plan_of(BASE + "env: {A: [1]}\n").runs
    asked = plan_of(BASE + "env: {A: [1]}\nplacement: [packed, spread, segment-16]\n").runs
    found = {(env["A"], env["SWEEP_PLACEMENT"]) for env in (one.run().env for one in asked)}
    assert found == {("1", "packed"), ("1", "spread"), ("1", "segment-16")}
    assert len(plain) == 1
    assert plain[0].run().env == {"A": "1"}
    with pytest.raises(SweepError, match=r"'near' is no placement \(packed, spread, or such as segment-16\)"):
        plan_of(BASE + "placement: [near]\n")


def test_include_adds_points_once_and_exclude_drops_them():
    text = BASE + "tp: [1, 2]\ninclude:\n  - {tp: 3, zero: [1, 3]}\n  - {tp: 1}\n  - {nodes: 2, tp: 6}\n"
    runs = [planned.run() for planned in plan_of(text).runs]
    assert sorted((r.nodes, r.layout.tp, r.layout.zero) for r in runs) == [
        (1, 1, 0),
        (1, 2, 0),
        (1, 3, 1),
        (1, 3, 3),
        (2, 6, 0),
    ]
    plan = plan_of(text + "exclude:\n  - {tp: [2, 3], zero: [0, 1]}\n")
    assert sorted((p.run().layout.tp, p.run().layout.zero) for p in plan.runs) == [(1, 0), (3, 3), (6, 0)]
    assert reasons(plan) == {"exclude[0]: tp=2|3, zero=0|1 is excluded"}


def test_a_schedule_that_is_included_adds_pipelines_only():
    """Without a pipeline every schedule is the same run."""
    text = BASE + "pp: [1, 2]\npp_schedule: [1f1b]\ninclude: [{pp_schedule: [gpipe]}]\n"
    layouts = [planned.run().layout for planned in plan_of(text).runs]
    assert sorted((layout.pp, layout.pp_schedule) for layout in layouts) == [(1, "1f1b"), (2, "1f1b"), (2, "gpipe")]


MANY = BASE + "tp: [1, 2, 3]\npp: [1, 2]\npp_schedule: [gpipe, 1f1b]\nzero: [0, 1, 3]\ninclude: [{zero: [1, 2]}]\n"


@pytest.mark.parametrize("size", [1, 7, 12])
def test_a_plan_does_not_depend_on_how_many_candidates_are_computed_at_once(size, monkeypatch):
    whole = plan_of(MANY).table
    monkeypatch.setattr(expand, "CHUNK", size)
    assert plan_of(MANY).table.to_pylist() == whole.to_pylist()
