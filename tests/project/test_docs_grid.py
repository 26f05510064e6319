"""docs/grid.md names every key, model, workload and parameter, and its examples work."""

import re

import pytest

from bench_workloads import WORKLOADS
from bench_workloads.transformer.settings import CHOICES, Settings
from sweep.inputs.grid import BudgetLimits, Grid
from sweep.inputs.load import parse_grid
from sweep.inputs.site import NodeGroup, Site, parse_site
from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.schedules import SCHEDULES
from sweep.physics.shapes import total_parameters
from sweep.plan.build import build
from tests.support.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "grid.md").read_text()
PARTS = dict(part.split("\n", 1) for part in TEXT.split("\n## ")[1:])
"""heading -> its text"""
FIRST, POINTS, BUDGET, GROUPS = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)


def tables(part):
    """Name -> the further cells, of each table whose rows begin with a name in backquotes (or several, with commas)."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", part, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        found.append({name: row[1:] for row in rows for name in re.findall(r"`([^`]+)`", row[0])})
    return [names for names in found if names]


@pytest.mark.parametrize(("model", "part"), [(Grid, "Keys of a grid"), (Site, "Keys of a site")])
def test_every_key_is_documented_and_no_other(model, part):
    keys, *_ = tables(PARTS[part])
    assert sorted(keys) == sorted(model.model_fields)


def test_the_example_has_runs():
    grid = parse_grid(FIRST, "docs/grid.md")
    assert build(grid, grid.site).runs


def test_the_constraints_and_points_work():
    more = "nodes: [1, 64]\nzero: [0, 1, 2, 3]\npp: [1, 4]\nrecompute: auto\n"
    text = FIRST.replace("nodes: {from: 1, to: 8, times: 2}\n", more).replace("1B", "8B") + POINTS
    plan = build((grid := parse_grid(text, "docs/grid.md")), grid.site)
    layouts = [planned.run().layout for planned in plan.runs]
    assert {layout.zero for layout in layouts if layout.pp == 4} <= {0, 1}
    assert all(layout.micro_batch_size in (1, 2, 4) for layout in layouts if layout.recompute == "none")


def test_node_groups_are_an_example_that_works_and_every_key_of_theirs_is_named():
    site = parse_site(GROUPS, "docs/grid.md")
    assert {group: part.hardware.name for group, part in site.parts.items()} == {"h100": "h100", "a100": "a100"}
    text = TEXT.split("### Several kinds of nodes")[1].split("\n## ")[0]
    assert [key for key in NodeGroup.model_fields if f"`{key}`" not in text] == []


def test_every_gpu_is_named_with_its_memory():
    _, kinds = tables(PARTS["Keys of a site"])
    assert kinds == {gpu.name: [f"{gpu.memory_bytes / 1e9:g} GB"] for gpu in GPUS.values() if gpu.memory_bytes}


def test_every_model_is_there_with_its_shape():
    (models,) = tables(PARTS["Models"])
    assert list(models) == list(MODELS)
    for name, shape in MODELS.items():
        width = shape.moe_intermediate_size or shape.intermediate_size
        heads = f"{shape.num_heads}, {shape.num_kv_heads}"
        sizes = [shape.num_layers, shape.hidden_size, heads, width, shape.vocab_size]
        assert models[name][1:6] == [str(size) for size in sizes], name
        number, unit = models[name][0].split()
        assert float(number) == pytest.approx(total_parameters(shape) / {"B": 1e9, "M": 1e6}[unit], rel=0.05), name
        assert ("tied" in models[name][6]) == shape.tied_embeddings, name
        assert ("experts" in models[name][6]) == (shape.num_experts > 0), name


def test_every_workload_is_there():
    (workloads,) = tables(PARTS["Workloads"])
    assert sorted(workloads) == sorted(WORKLOADS)


def test_every_parameter_of_the_transformer_is_there_with_its_default():
    (reported,) = tables(PARTS["Parameters of transformer"])
    assert list(reported) == list(Settings.defaults())
    for name, value in Settings.defaults().items():
        assert reported[name][0] == (str(value).lower() if isinstance(value, bool) else str(value)), name
        assert all(str(choice) in reported[name][1] for choice in CHOICES.get(name, ())), name
    assert all(schedule in PARTS["Parameters of transformer"] for schedule in SCHEDULES)


def test_the_budget_works_and_every_limit_is_named():
    grid = parse_grid(FIRST + BUDGET, "docs/grid.md")
    assert (grid.strategy, grid.budget.share, grid.budget.node_hours) == ("guided", 0.1, 200)
    assert all(
        re.search(rf"^\| .*\b{name}\b.* \|", PARTS["Budget"], re.MULTILINE) for name in BudgetLimits.model_fields
    )
