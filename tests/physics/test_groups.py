"""Which ranks form the groups of a layout's axes."""

import random

import pytest

from bench_workloads.transformer.mesh import ranks_in_order
from sweep.contract import Layout, Run
from sweep.physics.groups import nodes_together, split


def made(gpus_per_node=4, workload="transformer", params=None, **layout):
    planned = Layout(**layout)
    return Run(
        workload=workload, model="m", shape={}, nodes=planned.gpus // gpus_per_node, gpus_per_node=gpus_per_node,
        sequence_length=64, layout=planned, params=params or {},
    )  # fmt: skip


def by_mesh(run, parts, order):
    """The axes that are split, by the mesh that the built-in workload cuts its groups from."""
    layout = run.layout
    mesh = ranks_in_order(layout, order)
    found = {axis: mesh.movedim(at, -1).reshape(-1, mesh.shape[at]) for at, axis in ((3, "tp"), (2, "cp"), (0, "pp"))}
    width = layout.etp or layout.tp
    experts = ranks_in_order(Layout(dp=layout.gpus), order).flatten().view(-1, layout.ep, width)
    found["ep"] = experts.movedim(1, -1).reshape(-1, layout.ep)
    place = [parts[rank // run.gpus_per_node] for rank in range(run.gpus)]
    return {axis for axis, groups in found.items() if any(len({place[r] for r in g}) > 1 for g in groups.tolist())}


LAYOUTS = [
    {"dp": 4, "tp": 8}, {"dp": 8, "tp": 2, "ep": 8}, {"dp": 4, "tp": 4, "pp": 2, "ep": 2},
    {"dp": 2, "cp": 4, "tp": 2, "pp": 2},
    {"dp": 8, "tp": 4, "ep": 16, "etp": 1}, {"dp": 16, "ep": 16, "pp": 2}, {"tp": 6, "dp": 2, "cp": 2}, {"dp": 4},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("order", ["pp,dp,cp,tp", "dp,pp,cp,tp"])
def test_groups_are_those_of_the_workloads_mesh(layout, order):
    run, generator, seen = made(params={"mesh_order": order}, **layout), random.Random(str(layout)), set()
    for _ in range(40):
        cut = sorted(generator.sample(range(run.nodes + 1), k=min(2, run.nodes)))
        parts = [str(sum(node >= at for at in cut)) for node in range(run.nodes)]
        expected = by_mesh(run, parts, order)
        assert set(split(run, parts)) == expected, parts
        seen.add(frozenset(expected))
    assert len(seen) > 1 or run.nodes == 1 or layout == {"dp": 4}, "parts that split, and parts that do not"


@pytest.mark.parametrize(
    ("run", "together", "of_tp"),
    [
        (made(dp=4, tp=8), 2, 2),
        (made(dp=4, tp=8, params={"mesh_order": "pp,dp,cp,tp,unknown"}), 2, 2),
        (made(dp=8, tp=2, ep=8), 4, 1),
        (made(dp=8, tp=4, ep=16, etp=1), 4, 1),
        (made(dp=8, tp=4, ep=16, workload="torchtitan"), 4, 1),
        (made(dp=8, tp=4, ep=8), 8, 1),
        (made(tp=6, dp=2), 3, 3),
        (made(dp=4, tp=4, ep=2), 2, 1),
        (made(dp=8, etp=8), 1, 1),
        (made(dp=2, pp=8), 1, 1),
        (made(dp=2, cp=8), 1, 1),
    ],
)
def test_how_many_nodes_must_be_together(run, together, of_tp):
    """For tp and ep; cp and pp may cross. 6 ranks on nodes of 4: two groups on three nodes."""
    assert (nodes_together(run), nodes_together(run, ("tp",))) == (together, of_tp)


def test_picotron_puts_its_pipeline_inside_its_replicas():
    """Its grid is (dp, pp, cp, tp): stages are neighbours, which elsewhere are furthest apart."""
    layout, parts = {"dp": 4, "pp": 2, "tp": 2}, ["a", "a", "b", "b"]
    assert split(made(workload="picotron", **layout), parts) == []
    assert split(made(workload="nanotron", **layout), parts) == ["pp"]
