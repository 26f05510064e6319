"""A site with several kinds of nodes: each model once per group, with that group's GPU, in cells of their own."""

import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.plan.build import build
from sweep.plan.summary import summary
from sweep.search.node_groups import GroupedSearch
from sweep.state.state import SweepState

GRID = """\
models: [1B, 8B]
nodes: [1, 2, 4]
sequence_length: 4096
global_batch: 1Mi
tp: auto
zero: [0, 3]
{more}
site:
  gpu: h100
  gpus_per_node: 8
  {site}
"""
GROUPS = (
    "node_groups: {fast: {partition: gpu-h100}, old: {gpu: a100-40gb, gpus_per_node: 4, partition: gpu-a100, "
    "max_nodes: 2}}"
)


def plan_of(site="partition: gpu-h100", more=""):
    grid = parse_grid(GRID.format(site=site, more=more), "grid.yaml")
    return build(grid, grid.site)


def test_each_group_has_its_own_cells_gpus_and_predictions():
    cells = {(cell["model"], cell["nodes"]): cell for cell in summary(plan_of(GROUPS))["cells"]}
    fast = {(f"{model}@fast", nodes): 8 * nodes for model in ("1B", "8B") for nodes in (1, 2, 4)}
    old = {(f"{model}@old", nodes): 4 * nodes for model in ("1B", "8B") for nodes in (1, 2)}
    assert {cell: found["gpus"] for cell, found in cells.items()} == fast | old
    rates = {
        cell: found["predicted_best"]["tokens_per_second_per_gpu"] for cell, found in cells.items() if found["runs"]
    }
    assert rates["1B@old", 2] < rates["1B@fast", 1]
    assert cells["8B@old", 1]["runs"] == 0 < cells["8B@fast", 2]["runs"], "a memory of 40 GB, and of 80"


def test_runs_name_their_group_and_are_otherwise_those_of_one_kind():
    """The first group is the whole site of a sweep with one kind: the same layouts in the same order."""
    plain, grouped = plan_of(), plan_of(GROUPS)
    assert {run.node_group for run in grouped.runs} == {"fast", "old"}
    assert not any(run.node_group for run in plain.runs)
    fast = [run.run() for run in grouped.runs if run.node_group == "fast"]
    assert {run.model for run in fast} == {"1B@fast", "8B@fast"}
    assert {run.gpus_per_node for run in fast} == {8}
    assert [run.layout for run in fast] == [run.run().layout for run in plain.runs]
    assert all("-fast-n" in run.run_id for run in fast)


def test_run_ids_of_a_site_with_one_kind_are_those_of_earlier_versions():
    assert plan_of().runs[0].run_id == "1B-n1-dp8-tp1-pp1-mbs1-gas32-z0-de0941566b867234"


def test_a_constraint_chooses_groups_and_sees_the_grids_model():
    more = "constraints: [\"node_group == 'fast' or nodes == 1\", \"model == '1B'\"]"
    cells = {(run.model, run.nodes) for run in plan_of(GROUPS, more).runs}
    assert cells == {("1B@fast", 1), ("1B@fast", 2), ("1B@fast", 4), ("1B@old", 1)}


def test_more_nodes_than_any_group_has_are_refused():
    groups = "node_groups: {fast: {max_nodes: 2}, old: {gpu: a100, max_nodes: 1}}"
    with pytest.raises(SweepError, match="4 nodes are more than any max_nodes of the site's node groups 2"):
        plan_of(groups)


def test_measured_rates_are_of_the_sites_own_kind():
    rates = "measured: {date: '2026-11-20', between_bytes_per_s: 4.0e+10}"
    grid = parse_grid(GRID.format(site=f"{GROUPS}\n  {rates}", more=""), "grid.yaml")
    measured = {group: part.hardware.measured for group, part in grid.site.parts.items()}
    assert measured["fast"] is not None
    assert measured["old"] is None


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("{fast: {gpu: h101}}", "unknown GPU kind"),
        ("{fast: {partitoin: x}}", "partitoin"),
        ("{'a b': {partition: x}}", "not allowed here"),
    ],
)
def test_a_wrong_group_is_reported_at_its_line(groups, words):
    with pytest.raises(SweepError, match=words) as raised:
        plan_of(f"node_groups: {groups}")
    assert raised.value.mistakes[0].line == 11


def test_each_group_has_its_own_search_and_budget():
    grid = parse_grid(GRID.format(site=GROUPS, more=""), "grid.yaml")
    runs = build(grid, grid.site).runs
    gpus = {group: part.hardware for group, part in grid.site.parts.items()}
    search = GroupedSearch(runs, gpus, "exhaustive", {"runs": 1})
    asked = search.asked_for(SweepState())
    assert sorted(run.node_group for run in asked) == ["fast", "old"]
    left_out = search.left_out(SweepState())
    assert set(left_out) == {run.run_id for run in runs} - {run.run_id for run in asked}
    assert {run.node_group for run in runs if run.run_id in left_out} == {"fast", "old"}
