"""The trainers' guides: what each shows can be planned on GPUs, and each states what was run.

The grids of examples/trainers/ are those of their guides and are executed: test_command.py, test_external.py.
"""

import re

import pytest
import yaml

from bench_workloads.trainers import TRAINERS
from sweep.inputs.load import parse_grid
from sweep.inputs.site import parse_site
from sweep.planning.build import build
from tests.support.paths import REPOSITORY

GUIDES = REPOSITORY / "docs/trainers"
ROWS = re.findall(
    r"^\| \[.*?\]\(trainers/([\w-]+)\.md\).*\| `(\w+)` \|.*\| (.+) \|$",
    (GUIDES.parent / "trainers.md").read_text(),
    re.MULTILINE,
)
"""(page, workload, where it was run)"""
GRIDS = {page: re.findall(r"```yaml\n(.*?)```", (GUIDES / f"{page}.md").read_text(), re.DOTALL) for page, _, _ in ROWS}
ON_GPUS = [(page, text) for page, texts in GRIDS.items() for text in texts if "site: {gpu: cpu" not in text]
AXES = ("tp", "pp", "cp", "zero", "recompute", "pp_schedule")


def test_every_trainer_has_a_guide_in_the_table():
    assert {workload for _, workload, _ in ROWS} == set(TRAINERS)
    linked = set(re.findall(r"\(trainers/([\w-]+)\.md\)", (GUIDES.parent / "trainers.md").read_text()))
    assert linked == {page.stem for page in GUIDES.glob("*.md")}


@pytest.mark.parametrize(("page", "text"), ON_GPUS)
def test_each_value_of_a_guides_grid_is_in_a_run_that_fits_an_h100(page, text):
    """Or a reader would get a plan in which something that the guide shows is silently impossible."""
    grid = parse_grid(text, page)
    plan = build(grid, parse_site("gpu: h100\ngpus_per_node: 8\n", "site"))
    runs = [planned.run() for planned in plan.runs]
    assert {run.nodes for run in runs} == set(grid.nodes)
    assert {run.model for run in runs} == set(yaml.safe_load(text)["models"])
    shown = {axis: set(getattr(grid, axis)) for axis in AXES if axis in grid.model_fields_set}
    assert {axis: {getattr(run.layout, axis) for run in runs} for axis in shown} == shown


@pytest.mark.parametrize(("page", "where"), [(page, where) for page, _, where in ROWS])
def test_a_guide_states_what_was_and_what_was_not_run(page, where):
    text = (GUIDES / f"{page}.md").read_text().replace("\n", " ")
    if where == "configurations only":
        part = text.split("## What was run ", 1)[1]
        assert "Not run: " in part
        assert "tests/bench_workloads/trainers/test_" in part
        assert "test_reading.py" in part
    elif page != "command":
        assert "tests/bench_workloads/trainers/test_" in text or "examples/trainers/" in text
