"""An external script through `sweep launch`: figures, faults, and no process left."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support import driving
from tests.support.markdown import DOCS, blocks
from tests.support.paths import REPOSITORY
from tests.support.trainers.external import SCRIPTS, of_command

FAULT = SCRIPTS / "fault.py"
METRICS = r"""
iteration: step (\d+)
loss: loss (\S+)
step_time_s: time {number}
allocated_gib: mem {number} GiB
global_batch_sequences: ^batch of (\d+)
world_size: on (\d+) ranks
"""
GUIDES = {
    "plain.yaml": "command.md",
    "nanogpt.yaml": "scripts.md",
    "accelerate.yaml": "scripts.md",
    "lightning.yaml": "scripts.md",
    "hf_trainer.yaml": "scripts.md",
    "deepspeed.yaml": "deepspeed.md",
}
"""example -> its guide, which shows it or parts of it, in this order"""
ON_ONE_NODE = ["stays", "import_error", "mismatch", "segfault", "short", "nan"]
ON_TWO = {"nodes": 2, "a": ["none", "hang", "oom"]}
PARAMS = {"command": f"python {FAULT} {{{{ a }}}} {{{{ steps }}}}", "metrics": METRICS, "a": ON_ONE_NODE}
TIMEOUTS = {"start": "30s", "first_iteration": "30s", "steady": "4s"}
GRID = of_command(PARAMS, name="trainers", iterations=3, timeouts=TIMEOUTS, include=[ON_TWO])


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """One sweep over all faults: fault -> its last record."""
    root = tmp_path_factory.mktemp("faults")
    driving.launch(root, yaml.safe_dump(GRID), cwd=REPOSITORY)
    found = {json.loads(record["params_json"])["a"]: record for record in driving.records_of(root / "s")}
    return found, root / "s"


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("none", "ok"),
        ("stays", "ok"),
        ("hang", "hang"),
        ("oom", "oom_cuda"),
        ("import_error", "import_error"),
        ("mismatch", "config_mismatch: global_batch_sequences: requested 32, ran 16"),
        ("segfault", "segfault"),
        ("short", "python_exception: reported 3 of 5 iterations to measure"),
        ("nan", "nan_loss"),
    ],
)
def test_each_fault_ends_with_its_outcome(faults, fault, outcome):
    record, (outcome, _, words) = faults[0][fault], outcome.partition(": ")
    assert record["outcome"] == outcome, (record["message"], record["evidence"])
    assert words in (record["message"] or "")


def test_nothing_of_the_trainer_is_left(faults):
    assert driving.wait_until_unmarked(faults[1], 10) == []


def test_the_figures_are_those_that_the_script_printed(faults):
    record = faults[0]["none"]
    assert len(record["step_times_s"]) == 3
    assert all(seconds >= 0.05 for seconds in record["step_times_s"])
    assert record["losses"] == pytest.approx([4.0 / step for step in range(1, 6)])
    assert record["tokens_per_second"] == pytest.approx(2048 / record["step_time_median_s"])
    assert record["peak_memory_bytes"] == 4 * 2**30
    assert record["memory_kind"] == "the greatest that the trainer printed, greatest over ranks"
    assert record["rank_peak_memory_bytes"] == [rank * 2**30 for rank in (1, 2, 3, 4)]
    trainer = json.loads(record["extra_json"])["trainer"]
    assert trainer["printed_every"] == 1


@pytest.mark.long
def test_the_documented_example_works_as_it_is_written(tmp_path):
    """docs/trainers/command.md shows examples/trainers/plain.yaml."""
    words = ("launch", "examples/trainers/plain.yaml", "--dir", tmp_path / "s", "--executor", "local", "--yes")
    done = driving.succeeds(*words, "--json", cwd=REPOSITORY)
    assert json.loads(done.stdout)["counts"] == {"ok": 3}
    assert Path(json.loads(done.stdout)["heatmap"]).exists()
    for record in driving.records_of(tmp_path / "s"):
        extra = json.loads(record["extra_json"])
        reported = extra["trainer"]["reported"]["tokens_per_second"]
        assert record["tokens_per_second"] == pytest.approx(reported, rel=0.02)
        assert len(record["losses"]) == 2 + (extra["stopped"]["iterations_timed"] if record["stopped"] else 5)


def test_the_guides_show_the_grids_that_are_run():
    shown = [block for guide in dict.fromkeys(GUIDES.values()) for block in blocks(DOCS / "trainers" / guide, "yaml")]
    for example, block in zip(GUIDES, shown, strict=True):
        grid = yaml.safe_load((REPOSITORY / "examples/trainers" / example).read_text())
        part = yaml.safe_load(block)
        params = part.pop("params")
        assert params.items() <= grid["params"].items(), example
        assert part.items() <= grid.items(), example
        assert GUIDES[example] != "command.md" or part | {"params": params} == grid, example
