"""A site with several kinds of nodes: each model once per group, with that group's GPU, in cells of their own."""

import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.planning.build import build
from sweep.planning.summary import summary
from sweep.store.sweep import Sweep
from tests.support import made_plans
from tests.support.made_events import recorded
from tests.support.made_records import made_sweep, write_journal

GRID = """\
models: [1B, 8B]
nodes: [4, 1, 2]
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
    return made_plans.plan_of(GRID.format(site=site, more=more), None)


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


def test_a_constraint_chooses_groups_and_sees_the_grids_model():
    more = "constraints: [\"node_group == 'fast' or nodes == 1\", \"model == '1B'\"]"
    cells = {(run.model, run.nodes) for run in plan_of(GROUPS, more).runs}
    assert cells == {("1B@fast", 1), ("1B@fast", 2), ("1B@fast", 4), ("1B@old", 1)}


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


def sweep_of(path, site, more):
    grid = parse_grid(GRID.format(site=site, more=f"strategy: exhaustive\n{more}"), "grid.yaml")
    return Sweep(made_sweep(path), grid, grid.site, "local", "id", build(grid, grid.site).runs)


def test_each_group_has_its_own_search_and_budget(tmp_path):
    sweep = sweep_of(tmp_path, GROUPS, "budget: {runs: 1}")
    runs, skipped = sweep.runs, sweep.skipped()
    assert sorted(run.node_group for run in runs if run.run_id not in skipped) == ["fast", "old"]
    assert {run.node_group for run in runs if run.run_id in skipped} == {"fast", "old"}


def test_the_best_two_of_every_groups_cells_are_measured_again_before_any_third(tmp_path):
    sweep = sweep_of(tmp_path, GROUPS, "recompute: [none, selective, full]")
    runs, events, wanted = sweep.runs, [], ([], [])
    for group in ("fast", "old"):
        mine = [run for run in runs if run.node_group == group and (run.model.startswith("1B"), run.nodes) == (True, 1)]
        for place, rate in enumerate((100.0, 99.9, 99.8, 50.0)):
            facts = {"started_at": 0.0, "ended_at": 60.0, "node_names": ("a",)}
            events.append(recorded(mine[place].run_id, time=60.0, rate=rate, **facts))
        wanted[0].extend(run.run_id for run in mine[:2])
        wanted[1].append(mine[2].run_id)
    write_journal(sweep.directory, "p", events)
    assert sweep.to_remeasure(1.0) == [*wanted[0], *wanted[1]]


def test_a_site_without_groups_has_one_search_of_all_runs(tmp_path):
    sweep = sweep_of(tmp_path, "partition: gpu", "budget: {runs: 2}")
    assert set(sweep.skipped()) == {run.run_id for run in sweep.runs[2:]}
    assert sweep.to_remeasure(1.0) == []
