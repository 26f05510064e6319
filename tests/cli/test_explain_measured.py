"""`sweep explain` of a run that is ok: its figures, its rank in its cell, predicted against measured by part."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sweep.outcomes import Outcome
from sweep.store.sweep import Sweep
from tests.support.made_sweeps import GRID, Command, made, pilot_wrote
from tests.support.made_sweeps import command as command

H100 = """\
name: h100
workload: transformer
models: [1B]
nodes: [1]
sequence_length: 4096
global_batch: 1Mi
iterations: 3
tp: [1, 2]
micro_batch_size: [1, 2]
site: {gpu: h100, gpus_per_node: 8}
"""


def measured(path: Path, text: str) -> Sweep:
    sweep = made(path, text)
    pilot_wrote(sweep, "p0001", *((run.run_id, 1, Outcome.OK) for run in sweep.runs))
    return sweep


def test_the_step_is_explained_by_part(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", H100)
    run = sweep.runs[0]
    code, out, _ = command("explain", tmp_path / "s", run.run_id, "--json")
    assert code == 0
    (document,) = json.loads(out)
    found = document["measured"]
    parts = found["predicted"]["parts_s"]
    assert sum(parts.values()) == pytest.approx(found["predicted"]["step_s"], rel=0.01)
    assert len([seconds for seconds in parts.values() if seconds]) > 2
    assert 1 <= found["rank_in_cell"] <= found["ranked_in_cell"] == len(sweep.runs)
    code, out, _ = command("explain", tmp_path / "s", run.run_id)
    assert f"rank:     {found['rank_in_cell']} of {len(sweep.runs)} measured of 1B on 1 node" in out
    assert "measured, " in next(line for line in out.splitlines() if line.startswith("step:"))
    assert "predicted: " in next(line for line in out.splitlines() if line.startswith("parts:"))


def test_a_run_without_a_prediction_is_shown_without(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", GRID)
    code, out, _ = command("explain", tmp_path / "s", sweep.runs[0].run_id)
    assert code == 0
    assert "tokens/s/GPU" in out
    assert "no prediction: the hardware's speed is not known" in out
    assert "parts:" not in out


def test_the_gap_of_each_best_configuration_with_three_causes(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", H100)
    code, out, _ = command("explain", tmp_path / "s", "--gap", "--json")
    assert code == 0
    (found,) = json.loads(out)
    assert found["run_id"] in {run.run_id for run in sweep.runs}
    shares = [loss["share"] for loss in found["losses"]]
    assert shares == sorted(shares, reverse=True)
    assert found["ideal_step_s"] == pytest.approx(found["mfu"] * found["step_s"])
    code, out, _ = command("explain", tmp_path / "s", "--gap")
    assert re.findall(r"^  (\d)\. ", out, re.MULTILINE) == ["1", "2", "3"]
    assert "model's FLOPs at the dense peak" in out
    assert "arXiv 2407.21783" in out
    assert "`sweep doctor --tier perf` measures this cluster's own" in out


def test_the_gap_of_a_run_that_is_not_the_best(tmp_path: Path, command: Command) -> None:
    sweep = measured(tmp_path / "s", H100)
    for run in sweep.runs:
        _, out, _ = command("explain", tmp_path / "s", run.run_id, "--gap", "--json")
        assert [one["run_id"] for one in json.loads(out)] == [run.run_id]


def test_no_gap_is_claimed_of_a_run_that_failed(tmp_path: Path, command: Command) -> None:
    sweep = made(tmp_path / "s", H100)
    pilot_wrote(sweep, "p0001", (sweep.runs[0].run_id, 1, Outcome.OOM_CUDA))
    code, out, err = command("explain", tmp_path / "s", sweep.runs[0].run_id, "--gap")
    assert (code, out) == (2, "")
    assert f"no attempt of {sweep.runs[0].run_id} is ok" in err
