"""From bytes to iterations: lines in any chunks, coloured, prefixed, redrawn; numbers; the trainers' own lines."""

import dataclasses
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bench_workloads.trainers.adapter import ParsedLine
from bench_workloads.trainers.command import reader_of
from bench_workloads.trainers.driver import gathering
from bench_workloads.trainers.driver.gathering import Gathered
from bench_workloads.trainers.driver.reading import PREFIX, Lines, number
from sweep.contract import Measurement
from sweep.plugins import TRAINER
from sweep.records.validity import mismatches
from tests.support.trainers.layouts import SHAPE, run_of

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


def parsed(trainer, *lines, **layout):
    reader = TRAINER.find(trainer).reader(run_of(trainer, **(layout or {"dp": 2})))
    joined = Lines()
    whole = [*joined.timed("\n".join(lines).encode(), 0.0), *joined.timed(b"", 0.0)]
    return [one for line, _ in whole for one in reader.read(line)]


def stated(found):
    return {name: value for one in found for name, value in one.effective.items()}


def iterations(found):
    return {one.iteration: dict(one.values) for one in found if one.iteration is not None}


def test_two_ranks_in_one_line_are_two_iterations():
    reader = reader_of("iteration: step (\\d+)\nloss: loss {number}")
    found = reader.read("[rank0]: step 4 loss 2.0[rank1]: step 5 loss 1.5")
    assert iterations(found) == {4: {"loss": 2.0}, 5: {"loss": 1.5}}


def test_only_the_bar_of_the_training_counts():
    """Those of a model's shards and of the data come before it: they were measured in its stead."""
    path = Path(__file__).parents[3] / "examples/trainers/hf_trainer.yaml"
    reader = reader_of(yaml.safe_load(path.read_text())["params"]["metrics"])
    bars = ("Loading checkpoint shards: 100%|██| 4/4 [00:05<", "Map:  50%|█ | 500/1000 [00:01<", "  0%|  | 0/8 [00:00<")
    assert not any(iterations(reader.read(bar)) for bar in bars)
    assert iterations(reader.read(" 12%|█▎        | 1/8 [00:01<00:07,  1.00s/it]")) == {1: {}}


def test_a_number_of_an_iteration_may_look_like_a_launchers_label():
    reader = reader_of("iteration: ^(\\d+): loss\nloss: loss {number}")
    assert iterations(reader.read("12: loss 2.5")) == {12: {"loss": 2.5}}
    assert iterations(reader.read("3: 12: loss 2.5")) == {12: {"loss": 2.5}}
    for own in ("(\\d+): ", "\\[(\\d+)\\]"):
        assert [iterations(reader_of(f"iteration: {own}").read(line)) for line in ("3: begun", "[3]: begun")] == [
            {},
            {},
        ]


def test_a_comma_between_numbers_joins_none():
    reader = reader_of("iteration: ^(\\d+),\nstep_time_ms: ^\\d+,{number}\ntokens_per_second: {number} tok/s")
    for line, rate in (("12,1045,7, 3.4k tok/s", 3400.0), ("12,1045,8, 1,212,345 tok/s", 1212345.0)):
        assert iterations(reader.read(line)) == {12: {"step_time_s": 1.045, "tokens_per_second": rate}}


def test_json_lines_with_layout():
    reader = reader_of("json iteration=step step_time_ms=ms loss tp=tensor_parallel")
    found = reader.read('INFO {"step": 3, "ms": 250, "loss": 1.5, "tensor_parallel": 2, "other": [1]}')
    assert found == [ParsedLine(iteration=3, values={"step_time_s": 0.25, "loss": 1.5}, effective={"tp": 2})]
    assert iterations(reader.read('[10:00:00] INFO     {"step": 3, "loss": 1.5}       train.py:33')) == {
        3: {"loss": 1.5}
    }
    assert reader.read("{not json") == []
    assert reader.read('{"step": true}') == []


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


# fmt: off
def test_torchtitan():
    found = parsed(
        "torchtitan",
        "[titan] 2026-11-21 14:00:00,001 - root - INFO - Building device mesh with parallelism: pp=1, dp_replicate=1, "
        "dp_shard=4, cp=1, tp=2, ep=1",
        "[titan] 2026-11-21 14:00:01,001 - root - INFO - Applied FullAC activation checkpointing to the model",
        "[titan] 2026-11-21 14:00:02,001 - root - INFO - Trainer is initialized with local batch size 2, global batch "
        "size 16, gradient accumulation steps 2, sequence length 8192, total steps 8 (warmup 1)",
        "[titan] 2026-11-21 14:00:02,002 - root - INFO - Training starts at step 1",
        "[rank0]:[titan] 2026-11-21 14:00:05,001 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.24380  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.4316  \x1b[36mmemory: 47.25GiB(59.70%)  \x1b[34mtps: 3,402  "
        "\x1b[36mtflops: 312.54  \x1b[35mmfu: 31.60%\x1b[39m",
        "[titan] 2026-11-21 14:00:06,001 - root - INFO - validate step:  1  loss: 12.2  memory: 1.00GiB(1.0%)  tps: 9",
        dp=4, tp=2, zero=3,
    )
    assert stated(found) == {
        "pp": 1, "dp": 4, "cp": 1, "tp": 2, "ep": 1, "recompute": "full", "micro_batch_size": 2, "grad_accum": 2,
        "global_batch_sequences": 16, "sequence_length": 8192, "compile": False, "tp_overlap": False,
    }
    assert any(one.begun for one in found)
    assert iterations(found)[1] == pytest.approx({
        "loss": 12.2438, "grad_norm": 1.4316, "reserved_bytes": 47.25 * 2**30, "tokens_per_second_per_gpu": 3402,
        "tflops_per_gpu": 312.54, "mfu": 0.316,
    })


def test_torchtitan_in_a_pipeline_logs_its_micro_batches_elsewhere():
    found = parsed(
        "torchtitan",
        "[titan] - root - INFO - Using pipeline schedule Interleaved1F1B with 8 microbatches and 4 stages.",
        "[titan] - root - INFO - Trainer is initialized with local batch size 8, global batch size 16, gradient "
        "accumulation steps 1, sequence length 8192, total steps 8 (warmup 1)",
        dp=2, pp=2, grad_accum=8,
    )
    assert stated(found) == {
        "pp_schedule": "interleaved_1f1b", "grad_accum": 8, "global_batch_sequences": 16, "sequence_length": 8192,
    }


@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_megatron(trainer):
    found = parsed(
        trainer,
        "using world size: 16, data-parallel size: 2, context-parallel size: 1, hierarchical context-parallel sizes: "
        "None, tensor-model-parallel size: 4, pipeline-model-parallel size: 2",
        "  micro_batch_size ................................ 1",
        "  recompute_granularity ........................... full",
        "  seq_length ...................................... 4096",
        LINE.format(3, 1534.2, 0),
        MEMORY.format(0, 3, 30720.5, 32768),
    )
    assert stated(found) == {
        "world_size": 16, "dp": 2, "cp": 1, "tp": 4, "pp": 2, "micro_batch_size": 1, "recompute": "full",
        "sequence_length": 4096, "global_batch_sequences": 32,
    }
    assert iterations(found)[3] == pytest.approx(
        {"step_time_s": 1.5342, "tflops_per_gpu": 412.5, "loss": 10.86211, "grad_norm": 2.331, "skipped_iterations": 0}
    )
    (memory,) = [one.values for one in found if "allocated_bytes" in one.values]
    assert memory == pytest.approx({"allocated_bytes": 30720.5 * 2**20, "reserved_bytes": 32768 * 2**20})


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


def test_nemo_states_a_part_of_its_layout():
    found = parsed(
        "nemo",
        "model:",
        "  context_parallel_size: 2",
        "  hierarchical_context_parallel_sizes: null",
        "  virtual_pipeline_model_parallel_size: null",
        "train:",
        "  micro_batch_size: 4",
        "  rampup_batch_size: null",
        "> initialized tensor model parallel with size 8",
        "> initialized pipeline model parallel with size 4",
        LINE.format(1, 9000.0, 0),
    )
    assert stated(found) == {"cp": 2, "micro_batch_size": 4, "tp": 8, "pp": 4, "global_batch_sequences": 32}


def test_nemo_reports_memory_in_units_of_a_billion():
    gathered = gathered_from(
        "nemo",
        "[Rank 3] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 5.1 | mem-active-gigabytes: 5.1 | "
        "mem-inactive-gigabytes: 0.2 | mem-reserved-gigabytes: 8.0 | mem-max-allocated-gigabytes: 7.3 | "
        "mem-max-active-gigabytes: 7.4 | mem-max-inactive-gigabytes: 0.9 | mem-max-reserved-gigabytes: 8.25 | "
        "mem-alloc-retires: 0 | mem-allocated-count: 1234",
    )
    assert (gathered.greatest("allocated_bytes"), gathered.greatest("reserved_bytes")) == (7.3e9, 8.25e9)


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


def test_nanotron():
    found = parsed(
        "nanotron",
        "11/21/2026 14:00:05 [INFO|DP=0|PP=1|TP=0|node-7]: iteration: 3 / 8 | consumed_tokens: 12.6M | "
        "time_per_iteration_ms: 1.53K | tokens_per_sec: 2.74M | tokens_per_sec_per_gpu: 42.8K | grad_norm: 1.2 | "
        "global_batch_size: 4.19M | lm_loss: 11.1 | lr: 0.0001 | model_tflops_per_gpu: 389 | eta: 0:00:12",
    )
    assert iterations(found)[3] == pytest.approx({
        "step_time_s": 1.53, "tokens_per_second": 2.74e6, "tokens_per_second_per_gpu": 42.8e3, "grad_norm": 1.2,
        "loss": 11.1, "tflops_per_gpu": 389,
    })


NANOTRON = """\
Config(parallelism=ParallelismArgs(dp={dp},
                                   pp={pp},
                                   tp={tp},
                                   pp_engine=<nanotron.parallel.pipeline_parallel.engine.{engine}PipelineEngine object>,
                                   tp_mode=<TensorParallelLinearMode.REDUCE_SCATTER: 2>,
                                   recompute_layer={full},
                                   tp_recompute_allgather=True,
                                   expert_parallel_size=1,
                                   context_parallel_size={cp}),
       model=ModelArgs(model_config=LlamaConfig(hidden_act='silu',
                                                pretraining_tp=7,
                                                vocab_size=2048),
                       dtype=torch.{torch_dtype},
       tokens=TokensArgs(sequence_length=512,
                         micro_batch_size={micro_batch_size},
                         batch_accumulation_per_replica={grad_accum},
       optimizer=OptimizerArgs(optimizer_factory=AdamWOptimizerArgs(adam_eps=1e-08,
                               zero_stage={zero},
       data_stages=[DatasetStageArgs(name='synthetic',
                                     sequence_length=512)],
LlamaConfig(hidden_act='silu',
            pretraining_tp=7)
\x1b[1mStart training\x1b[0m
mbs: {micro_batch_size} | grad_accum: {grad_accum} | cp: {cp} | sequence_length: 512 | global_batch_size: {batch} | more
"""
"""its configuration by `pformat`, whose other lines are left out"""


def nanotron_lines(run):
    """Its output of a run: a prefix on each line, separators around titles, colours."""
    values = dataclasses.asdict(run.layout) | {"batch": run.global_batch_sequences}
    values["engine"] = {"1f1b": "OneForwardOneBackward", "gpipe": "AllForwardAllBackward"}[run.layout.pp_schedule]
    values["torch_dtype"] = {"bf16": "bfloat16", "fp32": "float32"}[run.dtype]
    text = NANOTRON.format(**values, full=run.layout.recompute == "full")
    return [f"\x1b[2;3m11/21 14:00:05 [INFO|DP=0|PP=1|TP=3|node-7]\x1b[0m: {line}" for line in text.splitlines()]


LAYOUTS = [
    {"dp": 2, "tp": 2, "pp": 2, "cp": 2, "zero": 1, "micro_batch_size": 2, "grad_accum": 4, "dtype": "bf16",
     "recompute": "none", "pp_schedule": "1f1b"},
    {"dp": 4, "tp": 8, "pp": 16, "cp": 32, "zero": 0, "micro_batch_size": 4, "grad_accum": 8, "dtype": "fp32",
     "recompute": "full", "pp_schedule": "gpipe"},
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nanotron_states_its_layout_a_field_a_line(layout):
    run = run_of("nanotron", **layout)
    found = parsed("nanotron", *nanotron_lines(run))
    assert any(one.begun for one in found)
    assert stated(found) == layout | {
        "ep": 1, "sequence_length": 512, "global_batch_sequences": run.global_batch_sequences,
    }


def test_picotron():
    found = parsed(
        "picotron",
        "[rank 3] Step: 5     | Loss: 10.8211 | Global batch size: 524.29K | Tokens/s: 182.44K | Tokens/s/GPU:  22.80K "
        "| Tokens:   2.62M | MFU: 38.12% | Memory usage:  41.20GB",
    )
    assert iterations(found)[5] == pytest.approx({
        "loss": 10.8211, "tokens_per_second": 182_440, "tokens_per_second_per_gpu": 22_800, "mfu": 0.3812,
        "reserved_bytes": 41.2e9,
    })


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


def test_deepspeed():
    found = parsed(
        "deepspeed",
        "[2026-11-21 14:26:30,842] [INFO] [config.py:678:print]   gradient_accumulation_steps .. 4",
        "[2026-11-21 14:26:30,842] [INFO] [config.py:678:print]   train_batch_size ............. 16",
        "[2026-11-21 14:26:30,842] [INFO] [config.py:678:print]   zero_optimization_stage ...... 2",
        "[2026-11-21 14:26:37,027] [INFO] [logging.py:123:log_dist] [Rank 0] step=2, skipped=0, lr=[0.0001], "
        "mom=[(0.9, 0.999)]",
        "[2026-11-21 14:26:37,205] [INFO] [logging.py:123:log_dist] [Rank 0] step=3, skipped=0, lr=[0.0001], "
        "mom=[(0.9, 0.999)]",
        "[2026-11-21 14:26:37,227] [INFO] [timer.py:264:stop] epoch=0/micro_step=12/global_step=3, "
        "RunningAvgSamplesPerSec=86.8763644648812, CurrSamplesPerSec=80.0, MemAllocated=0.34GB, MaxMemAllocated=0.5GB",
        dp=2, grad_accum=4, micro_batch_size=2, zero=2,
    )
    assert stated(found) == {"grad_accum": 4, "global_batch_sequences": 16, "zero": 2}
    assert iterations(found) == {
        2: {}, 3: {"samples_per_second": 80.0, "allocated_bytes": 0.5 * 2**30, "step_time_s": 16 / 80.0},
    }
# fmt: on


def test_deepspeed_counts_the_skipped_steps_once_each():
    """Its line states how many there were so far."""
    lines = [line for step, skipped in enumerate((1, 2, 2, 4, 4), 1) for line in (
        f"[logging.py:96:log_dist] [Rank 0] step={step}, skipped={skipped}, lr=[5e-05], mom=[[0.9, 0.999]]",
        f"[timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, RunningAvgSamplesPerSec=83.4, "
        "CurrSamplesPerSec=80.0, MemAllocated=0.26GB, MaxMemAllocated=9.02GB",
    )[: 1 + (step > 2)]]  # fmt: skip
    found = iterations(parsed("deepspeed", "[Rank 0] step=0, skipped=0, lr=[5e-05]", *lines))
    assert {step: values.get("skipped_iterations") for step, values in found.items()} == {
        1: 1, 2: 1, 3: None, 4: 2, 5: None,
    }  # fmt: skip


def test_values_before_the_iteration_units_and_absent_values_are_read():
    """EleutherAI/gpt-neox's line (deepspeedai/DeepSpeed#3742), and units without a space."""
    reader = reader_of(
        "iteration: (?<=iteration) +(\\d+)/\nsamples_per_second: samples/sec: {number}\nloss: lm_loss: {number}\n"
        "tflops_per_gpu: per GPU: {number}\nreserved_gib: mem {number}\nmfu_percent: mfu (?:N/A|{number})\n"
        "tp: tp=(?:none|(\\d+))"
    )
    line = (
        " samples/sec: 7.799 | iteration       34/   10000 | per GPU: 112.9TFLOPS | lm_loss: INF | mem 2GiB mfu N/A "
        "tp=none"
    )
    assert reader.read(line) == [
        ParsedLine(
            iteration=34,
            values={
                "samples_per_second": 7.799,
                "loss": math.inf,
                "tflops_per_gpu": 112.9,
                "reserved_bytes": 2 * 2**30,
            },
        )
    ]
    ended = reader_of("iteration: step {number}\nloss: loss (\\S+)$\nmfu: ^step.*mfu {number}")
    assert iterations(ended.read("[time] step 3 mfu 0.4 loss 2.5")) == {3: {"loss": 2.5, "mfu": 0.4}}
    rows = reader_of("json iteration=step loss")
    assert iterations(rows.read('{"step": 3.0, "loss": Infinity}')) == {3: {"loss": math.inf}}


def test_a_rank_of_a_pipeline_without_a_loss_has_none():
    """pytorch/torchtitan#1232."""
    line = "[titan] - root - INFO - step:  1  loss: -1.0000  memory: 36.90GiB(46.63%)  tps: 4  tflops: 0.90  mfu: 0.29%"
    assert "loss" not in iterations(parsed("torchtitan", line))[1]


def test_nanotrons_memory():
    """huggingface/nanotron#108, and `log_memory` of today."""
    gathered = gathered_from(
        "nanotron",
        "03/16/2024 09:10:16 [INFO|DP=0|PP=1|TP=0]: [After model building] Memory usage: 0.01MiB. Peak allocated: "
        "0.01MiB Peak reserved: 2.00MiB",
        "03/16/2024 09:10:17 [INFO|DP=0|PP=0|TP=0]:  Memory usage: 3.00MiB. Peak allocated 5.50MiB. Peak reserved: "
        "8.00MiB",
    )
    assert (gathered.greatest("allocated_bytes"), gathered.greatest("reserved_bytes")) == (5.5 * 2**20, 8 * 2**20)


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
