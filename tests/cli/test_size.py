"""`sweep size` as a user meets it."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.inputs.load import parse_grid
from sweep.inputs.site import Site
from sweep.planning.build import build
from sweep.planning.summary import summary
from tests.support.command_line import Called

size = Called("sweep.cli.size:size")


SMOL = ("--params", "3B", "--tokens", "11T", "--mfu", "0.30", "--gpu", "h100", "--peak-tflops", 720, "--days", 28)


def test_379_gpus():
    assert size.json(*SMOL)["gpus"] == 379
    text = size.shown(*SMOL)
    assert "379 GPUs for 28 days" in text
    assert "1.98e+23 FLOP" in text
    assert "216 TFLOP/s per GPU" in text


def test_days_on_a_number_of_gpus():
    found = size.json("--model", "Llama-3-8B", "--tokens", "1T", "--gpus", 256, "--mfu", 0.4)
    assert found["days"] == pytest.approx(6 * 8.03e9 * 1e12 / (256 * 0.4 * 989e12) / 86400, rel=1e-3)
    mixture = size.json("--model", "Mixtral-8x7B", "--tokens", "1T", "--gpus", 16)
    assert mixture["total_flops"] == pytest.approx(6 * 12.9e9 * 1e12, rel=0.01), "by its active parameters"
    assert found["amdahl"][-1] == {"serial_share": 0.1, "speed_up": pytest.approx(1 / (0.1 + 0.9 / 256))}


def test_the_speed_of_a_model_is_that_of_its_fastest_layout():
    found = size.json("--model", "Llama-3-8B", "--tokens", "1T", "--gpus", 64, "--sequence-length", 8192)
    grid = parse_grid(
        "{workload: megatron, models: [Llama-3-8B], nodes: [8], sequence_length: 8192, global_batch: 4M, tp: auto, "
        "global_batch_tolerance: 0.1, pp: auto, zero: auto, micro_batch_size: [1, 2, 4, 8], recompute: auto}",
        "grid",
    )
    (cell,) = summary(build(grid, Site(gpu="h100", gpus_per_node=8)))["cells"]
    fastest = cell["predicted_best"]["tokens_per_second_per_gpu"]
    assert found["tokens_per_second_per_gpu"] == pytest.approx(fastest)
    assert "the step-time model for megatron" in found["speed"]
    assert "90% probability" in found["speed"]
    needed = size.json("--model", "Llama-3-8B", "--tokens", "1T", "--days", found["days"] + 0.01)
    assert 48 <= needed["gpus"] <= 72


def test_the_binding_limit_is_named_with_the_least_change_that_meets_it():
    wide = ("--model", "Llama-3-70B", "--tokens", "15T", "--gpus", 1048576)
    (found,) = size.mistakes(*wide)
    assert found.startswith("--global-batch: the global batch limits Llama-3-70B on 1,048,576 h100")
    enough = re.search(r"--global-batch (\S+)M", found)[1]
    assert size.json(*wide, "--global-batch", f"{float(enough) * 1.001:.2f}M")["gpus"] == 1048576
    (found,) = size.mistakes("--model", "Llama-3-70B", "--tokens", "15T", "--gpus", 8)
    assert found.startswith("--gpus: memory limits Llama-3-70B on 8 h100")
    enough = re.search(r"--gpus (\d+)", found)[1]
    assert size.json("--model", "Llama-3-70B", "--tokens", "15T", "--gpus", enough)["gpus"] == int(enough)


def test_the_named_batch_is_enough_for_the_days_too():
    """For another batch other GPUs are needed: of the first advice the next call said that it was too little."""
    asked = ("--model", "Llama-3-70B", "--tokens", "15T", "--days", 30)
    (found,) = size.mistakes(*asked)
    enough = re.search(r"--global-batch (\S+M)", found)[1]
    assert size.json(*asked, "--global-batch", enough)["days"] == pytest.approx(30, rel=0.05)


def test_no_layout_is_named_that_the_trainers_adapter_refuses():
    """Megatron's has zero 0 and 1 only: zero=3 was the fastest of 70B on 64 GPUs."""
    for model in ("Llama-3-70B", "Llama-3-8B"):
        assert "zero=3" not in size.json("--model", model, "--tokens", "1T", "--gpus", 64)["speed"]


def results(path, rows):
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def row(gpus, speed, model="8B", outcome="ok"):
    return {"model": model, "gpus": gpus, "outcome": outcome, "tokens_per_second": speed}


def amdahl(gpus, serial=1e-7, parallel=1e-4):
    return 1 / (serial + parallel / gpus)


def test_speed_and_scaling_from_measured_results(tmp_path):
    rows = [row(n, amdahl(n)) for n in (8, 64, 512)]
    rows += [row(64, 0.5 * amdahl(64)), row(512, None, outcome="oom_cuda"), row(8, 9e9, outcome="hang")]
    path = results(tmp_path / "results.parquet", rows)
    found = size.json("--model", "8B", "--tokens", "1T", "--gpus", 128, "--from", path)
    assert found["serial_share"] == pytest.approx(1e-7 / (1e-7 + 1e-4), rel=1e-3)
    assert found["days"] == pytest.approx(1e12 / amdahl(128) / 86400, rel=1e-3)
    assert found["most_gpus"] == pytest.approx(500, rel=1e-3)
    assert any(point["gpus"] == 128 for point in found["curve"])
    needed = size.json("--model", "8B", "--tokens", "1T", "--days", found["days"] * 1.0001, "--from", path)
    assert needed["gpus"] == 128
    assert "Beyond about 500 GPUs" in size.shown("--model", "8B", "--tokens", "1T", "--gpus", 128, "--from", path)


def test_a_deadline_that_no_number_of_gpus_meets(tmp_path):
    path = results(tmp_path / "results.parquet", [row(n, amdahl(n)) for n in (8, 64)])
    (found,) = size.mistakes("--model", "8B", "--tokens", "1T", "--days", 0.5, "--from", path)
    assert "no number of GPUs is enough: the measured serial part takes 1.2 days" in found


def test_where_more_gpus_were_no_faster_the_fewest_that_were_measured_are_enough(tmp_path):
    path = results(tmp_path / "results.parquet", [row(n, 1e6 / n) for n in (8, 16, 64)])
    found = size.json("--model", "8B", "--tokens", "1T", "--days", 1000, "--from", path)
    assert found["gpus"] == 8
    assert found["days"] == pytest.approx(1e12 / (1e6 / 8) / 86400)
    text = size.shown("--model", "8B", "--tokens", "1T", "--days", 1000, "--from", path)
    assert "Beyond about 8 GPUs" in text


def test_insufficient_results(tmp_path):
    one = results(tmp_path / "one.parquet", [row(8, 1e5)])
    assert "two numbers of GPUs" in size.mistakes("--model", "8B", "--tokens", "1T", "--gpus", 8, "--from", one)[0]
    two = results(tmp_path / "two.parquet", [row(8, 1e5), row(16, 2e5, model="1B")])
    assert "several models: 1B, 8B" in size.mistakes("--params", "8B", "--tokens", "1T", "--gpus", 8, "--from", two)[0]


def test_every_mistake_at_once():
    assert len(size.mistakes("--tokens", "1T")) == 2
    assert len(size.mistakes("--tokens", "1T", "--params", "1B", "--model", "1B", "--days", 1, "--gpus", 1)) == 2
    assert "did you mean" in size.mistakes("--tokens", "1T", "--model", "8bb", "--days", 1)[0]
    assert "--peak-tflops" in size.mistakes("--tokens", "1T", "--model", "8B", "--days", 1, "--gpu", "cpu")[0]
