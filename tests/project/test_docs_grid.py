"""docs/grid.md and its reference: examples work, every workload is named; test_docs_generated holds the tables."""

import dataclasses
import json
import re

from bench_workloads import WORKLOADS
from bench_workloads.transformer.settings import CHOICES
from sweep.inputs.load import parse_grid
from sweep.inputs.site import NodeGroup, parse_site
from sweep.physics.schedules import SCHEDULES
from sweep.planning.build import build
from tests.support.paths import REPOSITORY

TEXT = (REPOSITORY / "docs" / "grid.md").read_text()
REFERENCE = (REPOSITORY / "docs" / "reference" / "grid.md").read_text()
PARTS = dict(part.split("\n", 1) for part in REFERENCE.split("\n## ")[1:])
"""heading -> its text"""
FIRST, POINTS, BUDGET, SHAPE, THEIRS, GROUPS = re.findall(r"```yaml\n(.*?)```", TEXT + REFERENCE, flags=re.DOTALL)


CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
"""of a Hugging Face repository: Llama 3 8B"""


def tables(part):
    """Name -> the further cells, of each table whose rows begin with a name in backquotes (or several, with commas)."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", part, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        found.append({name: row[1:] for row in rows for name in re.findall(r"`([^`]+)`", row[0])})
    return [names for names in found if names]


def test_the_example_has_runs():
    grid = parse_grid(FIRST, "docs/grid.md")
    assert build(grid, grid.site).runs


def test_the_two_equations_hold_for_every_run():
    (equations,) = re.findall(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)
    grid = parse_grid(FIRST.replace("1B", "8B"), "docs/grid.md")
    runs = [planned.run() for planned in build(grid, grid.site).runs]
    assert runs
    for run in runs:
        known = {"GPUs": run.gpus, "batch": run.global_batch_tokens, "sequence_length": run.sequence_length}
        for line in equations.splitlines():
            left, _, right = line.replace("global batch in tokens", "batch").partition(" = ")
            assert eval(left, {**known, **dataclasses.asdict(run.layout)}) == known[right], (line, run.run_id)


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
    text = REFERENCE.split("### Several kinds of nodes")[1].split("\n## ")[0]
    assert [key for key in NodeGroup.model_fields if f"`{key}`" not in text] == []


def test_models_can_be_given_by_shape_and_by_a_configuration_file(tmp_path, monkeypatch):
    (tmp_path / "path").mkdir()
    (tmp_path / "path/config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    for models, name in ((SHAPE, "mine"), (THEIRS, "theirs")):
        text = re.sub(r"(?m)^models: .*\n", models, FIRST)
        grid = parse_grid(text, "docs/grid.md")
        assert {planned.run().model for planned in build(grid, grid.site).runs} == {name}


def test_every_workload_is_there():
    (workloads,) = tables(PARTS["Workloads"])
    assert sorted(workloads) == sorted(WORKLOADS)


def test_the_budget_works():
    grid = parse_grid(FIRST + BUDGET, "docs/grid.md")
    assert (grid.strategy, grid.budget.share, grid.budget.node_hours) == ("guided", 0.1, 200)


def test_every_value_of_the_transformer_is_named():
    page = (REPOSITORY / "docs/reference/workloads.md").read_text().split("## transformer")[1].split("\n## ")[0]
    names = [*SCHEDULES, *(str(choice) for choices in CHOICES.values() for choice in choices)]
    assert [name for name in names if name not in page] == []
