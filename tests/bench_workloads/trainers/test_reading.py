"""From bytes to iterations: lines in any chunks, coloured, prefixed, redrawn; numbers; the trainers' own lines."""

import dataclasses
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench_workloads.trainers.command import reader_of
from bench_workloads.trainers.driver import gathering
from bench_workloads.trainers.driver.gathering import Gathered
from bench_workloads.trainers.driver.reading import PREFIX, Lines, number
from sweep.contract import Measurement
from sweep.plugins import TRAINER
from sweep.records.validity import mismatches
from tests.support.trainers.layouts import SHAPE, run_of

LOGS = yaml.safe_load(Path(__file__).with_name("logs.yaml").read_text())
NANOTRON = Path(__file__).with_name("nanotron_configuration.txt")
"""its configuration by `pformat`, whose other lines are left out"""
OUTPUT = "step 1 loss 2.5\r\n\x1b[31mstep 2\x1b[0m ünïcode\r 10%|█ | 1/10\r 20%|██ | 2/10\nlast"


@given(st.lists(st.integers(1, 9), max_size=60))
def test_lines_are_the_same_however_they_are_cut(sizes):
    data, lines, found = OUTPUT.encode(), Lines(), []
    for size in sizes:
        found += lines.timed(data[:size], 0.0) if data else []
        data = data[size:]
    found += [*(lines.timed(data, 0.0) if data else []), *lines.timed(b"", 0.0)]
    assert [line for line, _ in found] == [
        "step 1 loss 2.5",
        "step 2 ünïcode",
        " 10%|█ | 1/10",
        " 20%|██ | 2/10",
        "last",
    ]


def test_a_line_of_a_progress_bar_is_as_old_as_its_text_not_as_the_next_one():
    lines, pieces = Lines(), [b"\r 1/8 [00:01", b"]", b"\r 2/8\r\n", b"loss 1\r", b"\r 3/8", b"", b" 4/8", b"!\r", b""]
    timed = [one for at_s, data in enumerate(pieces) for one in lines.timed(data, at_s)]
    assert timed == [(" 1/8 [00:01]", 1), (" 2/8", 2), ("loss 1", 3), (" 3/8", 4), (" 4/8!", 7)]


def test_an_endless_line_does_not_fill_the_memory():
    lines = Lines()
    held = [lines.timed(b"x" * 50_000, 0.0) for _ in range(100)]
    assert sum(len(line) for batch in held for line, _ in batch) >= 100 * 50_000 - 64_000


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("[rank3]: step 1", "step 1"),
        ("[default12]:step 1", "step 1"),
        (" 7: step 1", "step 1"),
        ("[2026-11-21 14:26:37] step 1", "[2026-11-21 14:26:37] step 1"),
        ("step 1", "step 1"),
    ],
)
def test_launchers_prefixes(line, rest):
    assert PREFIX.sub("", line) == rest


@pytest.mark.parametrize(
    ("text", "value"),
    [("3,400", 3400), ("1.5e-3", 0.0015), ("2.1K", 2100), ("1.02M", 1.02e6), ("inf", math.inf), ("nan", math.nan)],
)
def test_numbers(text, value):
    assert number(text) == pytest.approx(value, nan_ok=True)
    assert number("n/a") is None


def read_by(reader, lines):
    """What a reader takes of lines that come in one piece."""
    joined = Lines()
    whole = [*joined.timed("\n".join(lines).encode(), 0.0), *joined.timed(b"", 0.0)]
    return [one for line, _ in whole for one in reader.read(line)]


def parsed(trainer, *lines, **layout):
    return read_by(TRAINER.find(trainer).reader(run_of(trainer, **(layout or {"dp": 2}))), lines)


def stated(found):
    return {name: value for one in found for name, value in one.effective.items()}


def iterations(found):
    return {one.iteration: dict(one.values) for one in found if one.iteration is not None}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.get("why") or log["trainer"])
def test_what_a_trainer_or_a_command_prints_is_read(log):
    if "metrics" in log:
        found = read_by(reader_of(log["metrics"]), log["lines"])
    else:
        found = parsed(log["trainer"], *log["lines"], **log.get("layout", {}))
    assert stated(found) == log.get("stated", {})
    assert any(one.begun for one in found) == log.get("begun", False)
    assert not any(one.checkpoint for one in found)
    ended = [{"iteration": one.iteration, **one.values} for one in found if one.iteration is not None]
    assert ended == [pytest.approx(values) for values in log.get("iterations", [])]
    apart = [dict(one.values) for one in found if one.iteration is None and one.values]
    assert apart == [pytest.approx(values) for values in log.get("apart", [])]


def test_only_the_bar_of_the_training_counts():
    """Those of a model's shards and of the data come before it: they were measured in its stead."""
    path = Path(__file__).parents[3] / "examples/trainers/hf_trainer.yaml"
    reader = reader_of(yaml.safe_load(path.read_text())["params"]["metrics"])
    bars = ("Loading checkpoint shards: 100%|██| 4/4 [00:05<", "Map:  50%|█ | 500/1000 [00:01<", "  0%|  | 0/8 [00:00<")
    assert not any(iterations(reader.read(bar)) for bar in bars)
    assert iterations(reader.read(" 12%|█▎        | 1/8 [00:01<00:07,  1.00s/it]")) == {1: {}}


@pytest.mark.parametrize("text", ["loss: x (\\d+)", "iteration: (\\d+", "iteration: \\d+", "iteration", "what: (\\d+)"])
def test_metrics_that_cannot_be_read_are_refused(text):
    with pytest.raises(ValueError, match=r"invalid value for metrics|expression|groups"):
        reader_of(text)


MEMORY = (
    "[Rank {}] (after {} iterations) memory (MB) | allocated: 20480.12 | max allocated: {:.2f} | reserved: 31000.00 | "
    "max reserved: {:.2f}"
)
LINE = (
    " [2026-11-21 14:00:05.123456] iteration {:8d}/       8 | consumed samples:           96 | elapsed time per "
    "iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 412.5 | learning rate: 1.000000E-04 | global batch "
    "size:    32 | lm loss: 1.086211E+01 | loss scale: 1.0 | grad norm: 2.331 | number of skipped iterations: {:3d} "
    "| number of nan iterations:   0 |"
)


def gathered_from(trainer, *lines, warmup=1, iterations=1):
    """The parsed output of one process of the trainer, gathered: an iteration a second."""
    gathered = Gathered(warmup, iterations)
    for one in parsed(trainer, *lines):
        gathered.add(one, float(len(gathered.entries)))
    return gathered


def test_memory_of_ranks_that_write_into_one_pipe_is_the_greatest():
    lines = [
        MEMORY.format(0, 1, 100, 500) + LINE.format(1, 9000.0, 0),
        MEMORY.format(2, 1, 900, 120) + MEMORY.format(0, 2, 300, 130),
        LINE.format(2, 5000.0, 0) + MEMORY.format(2, 2, 800, 110) + MEMORY.format(0, 2, 850, 110),
    ]
    gathered = gathered_from("megatron", *lines)
    assert (gathered.greatest("allocated_bytes"), gathered.greatest("reserved_bytes")) == (900 * 2**20, 500 * 2**20)
    assert [entry.number for entry in gathered.entries] == [1, 2]


def test_megatrons_second_line_is_a_mean_with_the_first_and_not_one_iteration():
    """Its timer runs on after the line that it adds for the first iteration (training.py, should_reset)."""
    lines = [LINE.format(1, 9000.0, 0), LINE.format(2, 5000.0, 0), LINE.format(3, 1000.0, 0)]
    found = iterations(parsed("megatron", *lines))
    assert [found[number].get("step_time_s") for number in (1, 2, 3)] == [9.0, None, 1.0]
    assert [found[number].get("tflops_per_gpu") for number in (1, 2, 3)] == [412.5, None, 412.5]
    assert gathered_from("megatron", *lines[:2]).timed_s() == [1.0]  # by the clock
    bridge = iterations(parsed("nemo", LINE.format(1, 9000.0, 0), LINE.format(2, 1000.0, 0)))
    assert bridge[2]["step_time_s"] == 1.0


@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_timed_iterations_whose_step_was_skipped_are_noted(trainer):
    run = dataclasses.replace(run_of(trainer, dtype="fp16"), warmup_iterations=2, iterations=3)
    lines = [LINE.format(number, 1000.0, number < 5) for number in range(1, 7)]
    gathered = gathered_from(trainer, *lines, warmup=2, iterations=3)
    notes = gathering.notes(gathering.compare(run, gathered, ""), gathered)
    assert any(note.startswith("2 of 3 timed iterations skipped the optimizer's step") for note in notes)
    only_warmup = gathered_from(trainer, LINE.format(1, 9.0, 1), LINE.format(2, 9.0, 0), LINE.format(3, 9.0, 0))
    assert only_warmup.skipped() == 0


def nanotron_lines(run):
    """Its output of a run: a prefix on each line, separators around titles, colours."""
    values = dataclasses.asdict(run.layout) | {"batch": run.global_batch_sequences}
    values["engine"] = {"1f1b": "OneForwardOneBackward", "gpipe": "AllForwardAllBackward"}[run.layout.pp_schedule]
    values["torch_dtype"] = {"bf16": "bfloat16", "fp32": "float32"}[run.dtype]
    text = NANOTRON.read_text().format(**values, full=run.layout.recompute == "full")
    text = text.replace("Start training", "\x1b[1mStart training\x1b[0m")
    return [f"\x1b[2;3m11/21 14:00:05 [INFO|DP=0|PP=1|TP=3|node-7]\x1b[0m: {line}" for line in text.splitlines()]


LAYOUTS = [
    {"dp": 2, "tp": 2, "pp": 2, "cp": 2, "zero": 1, "micro_batch_size": 2, "grad_accum": 4, "dtype": "bf16",
     "recompute": "none", "pp_schedule": "1f1b"},
    {"dp": 4, "tp": 8, "pp": 16, "cp": 32, "zero": 0, "micro_batch_size": 4, "grad_accum": 8, "dtype": "fp32",
     "recompute": "full", "pp_schedule": "gpipe"},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nanotron_states_its_layout_a_field_a_line(layout):
    run = run_of("nanotron", **layout)
    found = parsed("nanotron", *nanotron_lines(run))
    assert any(one.begun for one in found)
    also = {"ep": 1, "sequence_length": 512, "global_batch_sequences": run.global_batch_sequences}
    assert stated(found) == layout | also


# What get_num_params of 59714b1 returned for SHAPE with 7 layers, by layout, and to_readable_format made of it
@pytest.mark.parametrize(
    ("layout", "printed"),
    [({"tp": 2}, "5.18M"), ({"pp": 2}, "5.18M"), ({"tp": 2, "pp": 2}, "5.18M"), ({"tp": 4}, "5.19M")],
)
def test_picotron_with_another_model_is_detected(layout, printed):
    """It takes width, MLP and vocabulary from `model_name`: another model than the grid's would have its record."""
    run = dataclasses.replace(run_of("picotron", **layout), shape={**SHAPE, "num_layers": 7}, iterations=1)
    for text, wrong in ((printed, []), ("5.23M", ["parameters_total: requested 5181184, ran 5230000 (rank 0)"])):
        read = TRAINER.find("picotron").reader(run).read(f"Number of parameters: {text}")
        given = Measurement(step_times_s=[1.0], effective=stated(read))
        assert "parameters_total" in given.effective
        assert mismatches(run, [given]) == wrong


@pytest.mark.parametrize("digits", [16, 400, 5000])
def test_a_whole_number_that_no_trainer_counts_is_not_read(digits):
    """Python refuses to read one of 5,000 digits, and a float does not hold one of 400."""
    huge = "9" * digits
    reader = reader_of("iteration: step (\\d+)\nloss: loss {number}\nworld_size: world (\\d+)")
    assert iterations(reader.read(f"step {huge} loss 2.0")) == {}
    assert stated(reader.read(f"world {huge}")) == {}
    assert iterations(reader.read("step 7 loss 2.0")) == {7: {"loss": 2.0}}
    rows = reader_of("json iteration=step loss tp=tensor_parallel")
    assert iterations(rows.read(f'{{"step": {huge}, "loss": 2.0}}')) == {}
    assert stated(rows.read(f'{{"step": 7, "tensor_parallel": {huge}}}')) == {}
    assert rows.read("{" + '"a":[' * 20_000) == []
    assert stated(parsed("megatron", f"using world size: {huge}, data-parallel size: 2")) == {"dp": 2}
