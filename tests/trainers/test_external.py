"""Real trainers, not written here, through `sweep launch` on CPU: every layout measured, figures as they print them.

SWEEP_DEEPSPEED_PYTHON and SWEEP_TRANSFORMERS_PYTHON name interpreters that have them (DS_BUILD_OPS=0 pip install
deepspeed; pip install transformers accelerate); without them the tests are skipped.
"""

import json
import os
import statistics
from pathlib import Path

import pytest

from tests import driving

REPOSITORY = Path(__file__).resolve().parents[2]


def measured(tmp_path, example, variable, *overrides):
    """The records of an example's sweep, all of them ok, with nothing left behind."""
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} is not set")
    directory = tmp_path / "s"
    words = [word for override in (f"params.python={python}", *overrides) for word in ("-o", override)]
    grid = REPOSITORY / "examples/trainers" / example
    done = driving.run(
        *("launch", grid, "--dir", directory, "--executor", "local", "--yes", "--json", *words), cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary["counts"]) == {"ok"}, summary
    assert Path(summary["heatmap"]).read_bytes().startswith(b"\x89PNG")
    assert driving.wait_until_unmarked(directory, 10) == []
    return driving.assert_each_run_measured_once(directory), directory


def test_deepspeed(tmp_path):
    records, directory = measured(
        tmp_path, "deepspeed.yaml", "SWEEP_DEEPSPEED_PYTHON", "zero=[0,2]", "micro_batch_size=4"
    )
    assert {record["zero"] for record in records} == {0, 2}
    for record in records:
        effective = json.loads(record["effective_json"])
        assert effective["zero"] == record["zero"]
        assert effective["global_batch_sequences"] * 64 == record["global_batch_tokens"]
        log = (directory / "logs" / f"{record['run_id']}.{record['attempt']}.log").read_text()
        printed = {
            int(line.split("global_step=")[1].split(",")[0]): float(line.split("CurrSamplesPerSec=")[1].split(",")[0])
            for line in log.splitlines()
            if "CurrSamplesPerSec=" in line
        }
        rate = statistics.median(printed[step] for step in range(3, 8)) * 64
        assert record["tokens_per_second"] == pytest.approx(rate, rel=0.02)
        assert json.loads(record["versions_json"])["deepspeed"]


def test_the_trainer_of_transformers_by_its_progress_bar(tmp_path):
    records, _ = measured(tmp_path, "hf_trainer.yaml", "SWEEP_TRANSFORMERS_PYTHON", "micro_batch_size=[4,16]")
    assert {record["grad_accum"] for record in records} == {1, 4}
    for record in records:
        assert len(record["step_times_s"]) == 5
        # A bar that is redrawn after its step's losses leaves a step without one: the record then has none at all.
        assert all(5 < loss < 8 for loss in record["losses"] or ())
        assert json.loads(record["effective_json"]) == {"world_size": 2}
