"""docs/grid.md names every key, with its default, and its examples work."""

import re
from pathlib import Path

import pytest

from sweep.grid import Grid, Limits, parse_grid
from sweep.physics.hardware import GPUS
from sweep.plan import build
from sweep.site import Site

TEXT = (Path(__file__).parent.parent / "docs" / "grid.md").read_text()
GRID_PART, SITE_PART = TEXT.split("## Keys of a grid")[1].split("## Keys of a site")
FIRST, POINTS, BUDGET = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.parametrize(("model", "part"), [(Grid, GRID_PART), (Site, SITE_PART)], ids=["grid", "site"])
def test_every_key_is_documented_and_no_other(model, part):
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(model.model_fields)


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


def test_every_gpu_is_named():
    assert all(re.search(rf"\b{name}\b", SITE_PART) for name in GPUS)


def test_the_budget_works_and_every_limit_is_named():
    grid = parse_grid(FIRST + BUDGET, "docs/grid.md")
    assert (grid.strategy, grid.budget.share, grid.budget.node_hours) == ("guided", 0.1, 200)
    part = GRID_PART.split("## Budget")[1]
    assert all(re.search(rf"^\| .*\b{name}\b.* \|", part, re.MULTILINE) for name in Limits.model_fields)
