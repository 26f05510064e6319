"""`workload: command` with an ordinary script: what its patterns miss, and its command as it is exported."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from sweep.store.directory import SweepDir
from sweep.store.place import adopt
from tests.support import driving
from tests.support.paths import REPOSITORY

SCRIPT = """
import os, sys, time
def print(*words, flush=False):  # a line in one write, so that those of two ranks do not mix
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    flush and sys.stdout.flush()
print("of the site:", os.environ["FLAVOUR"], os.environ["DATA"], os.environ["CONTAINED"], flush=True)
print(f"world size {os.environ['WORLD_SIZE']}", flush=True)
for step in range(1, 30):
    time.sleep(0.03)
    if os.environ["RANK"] == "0":
        print(f"step {step} | loss {3 - step / 100 + LOSS:.4f} | mfu {-100.0 if step < 4 else 12.5:.2f}%", flush=True)
print("the last line of rank", os.environ["RANK"])
"""
GRID = """\
name: anybodys
workload: command
models: [tiny-1M]
nodes: 1
sequence_length: 64
global_batch: 1024
dtype: fp32
micro_batch_size: [4, 8]
warmup_iterations: 1
iterations: 4
remeasure: 0
stop_slow: "off"
constraints: ["tp == 1 and pp == 1 and zero == 0"]
params:
  command: python {script} --losses {{{{ micro_batch_size }}}}
  start: {start}
  metrics: |
    iteration: ^step (\\d+)
    loss: loss {{number}}
    mfu_percent: mfu {{number}}
    grad_norm: norm {{number}}
    world_size: ^world size (\\d+)
site:
  gpu: cpu
  gpus_per_node: 2
  env: {{FLAVOUR: two words}}
  setup: ['for name in tokens; do export DATA=/data/$name; done']
  container_prefix: [env, CONTAINED=yes]
  python: {python}
"""


@pytest.fixture(scope="module", params=["rank", "node"])
def measured(request, tmp_path_factory):
    """A sweep of two layouts whose losses differ, as the order of their data does; started per rank and per node."""
    folder = tmp_path_factory.mktemp(request.param)
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("LOSS", "(0.02 if '8' in __import__('sys').argv else 0.0)"))
    python = folder / "python of the nodes"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = driving.launched(folder, GRID.format(script=script.name, start=request.param, python=python), cwd=folder)
    return folder, done


def test_who_continues_it_from_another_directory_runs_the_same_script(measured, tmp_path):
    """Its path is relative to where the sweep was launched."""
    folder, _ = measured
    adopt(SweepDir(shutil.copytree(folder / "s", tmp_path / "s")))
    driving.succeeds("rerun", tmp_path / "s", "mbs4", cwd=tmp_path)
    driving.succeeds("resume", tmp_path / "s", cwd=tmp_path)
    attempts = [record for record in driving.records_of(tmp_path / "s") if record["attempt"] == 2]
    assert [record["outcome"] for record in attempts] == ["ok"]


def test_an_expression_that_matched_nothing_is_noted_and_shown_at_the_end(measured):
    folder, done = measured
    for record in driving.records_of(folder / "s"):
        assert "params.metrics: 'grad_norm' matched no line of the trainer's output" in record["notes"]
        assert not any("loss" in note for note in record["notes"])
    assert "'grad_norm' matched no line" in done.stdout + done.stderr


@pytest.mark.parametrize("start", ["rank", "node"])
def test_an_expression_of_the_iteration_that_matches_nothing_is_named_with_the_lines_it_was_tried_on(start, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("LOSS", "0.0"))
    grid = GRID.format(script=script.name, start=start, python=sys.executable)
    done = driving.launch(
        tmp_path,
        grid.replace("micro_batch_size: [4, 8]", "micro_batch_size: 4"),
        "-o",
        'params.metrics="iteration: epoch {number}, step"',
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stderr
    (record,) = driving.records_of(tmp_path / "s")
    assert record["outcome"] == "config_error", record["message"]
    assert "`iteration` of params.metrics, 'epoch {number}, step', matched no line" in record["message"]
    assert re.search(r"the last ones were .*'the last line of rank [01]'$", record["message"]), record["message"]
    assert record["advice"].startswith(
        "The trainer trained, but its iterations were not recognized: correct `iteration`"
    )


def test_impossible_values_are_left_out_with_a_note(measured):
    for record in driving.records_of(measured[0] / "s"):
        assert any(note.startswith("mfu: 3 impossible values left out, such as -1") for note in record["notes"])
        reported = json.loads(record["extra_json"])["trainer"]["reported"]
        assert reported["mfu"] == pytest.approx(0.125)


def test_losses_of_another_data_order_are_no_contradiction(measured):
    """They differ by 0.7 %: too much for one training in fp32, usual between layouts of an ordinary trainer."""
    folder, _ = measured
    done = driving.run("best", folder / "s", "--format", "json")
    (row,) = json.loads(done.stdout)
    assert not any("losses differ" in note for note in row["notes"])


def test_the_exported_command_runs_unchanged(measured, tmp_path):
    folder, _ = measured
    printed = driving.succeeds("best", folder / "s", "--format", "command", cwd=tmp_path)
    assert " -m torch.distributed.run --standalone --nproc-per-node=2 " in printed.stdout
    assert f"{folder}/python of the nodes" in printed.stdout
    done = subprocess.run(["bash", "-ec", printed.stdout], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" two words /data/tokens yes") == 2, "the site's variables, set-up and container"
    assert done.stdout.count("world size 2") == 2
    assert {f"the last line of rank {rank}" for rank in (0, 1)} <= set(done.stdout.splitlines())


def test_a_script_in_the_manner_of_nanogpt(tmp_path):
    """It counts from 0, runs one iteration more than asked, and prints an MFU of -100 % at first."""
    grid = REPOSITORY / "examples/trainers/nanogpt.yaml"
    words = ("launch", grid, "--dir", tmp_path / "s", "--executor", "local", "--yes", "-o", "micro_batch_size=16")
    driving.succeeds(*words, cwd=REPOSITORY)
    (record,) = driving.records_of(tmp_path / "s")
    assert len(record["step_times_s"]) == record["iterations"]
    assert json.loads(record["effective_json"]) == {"global_batch_tokens": record["global_batch_tokens"]}
    # a busy host has notes of its own: more tasks than cores, lines that came later than their steps ended
    (note,) = (note for note in record["notes"] if "impossible" in note)
    assert re.match(r"mfu: \d+ impossible values left out, such as -1", note)
    assert not any("matched no line" in note or "losses differ" in note for note in record["notes"])
