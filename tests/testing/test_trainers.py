"""Our own adapters configure every axis that they declare, and read their trainers' output; no trainer is needed."""

import re
from dataclasses import fields

import pytest

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.adapter import SHARED_CHOICES, TrainerParameters
from bench_workloads.trainers.driver.reading import NAMES
from sweep.contract import Measurement
from sweep.physics.flops import CONVENTIONS
from sweep.plugins import TRAINER
from sweep.records.validity import requested
from tests.support.example_runs import example_run, variants
from tests.support.trainers.layouts import PARAMS

STEPS = 4
ODD_LINES = (
    *("", " ", "\x00", "∞ ünïcode \ud800", "step: nan loss: inf", "9" * 10_000, "{'a': [", "100%|████| 8/8"),
    *("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "iteration: / | loss: nan"),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "[rank1]: iteration step: Step: global_step= NaN | \x00\udcff {",
)
"""no trainer's reader may raise on any line, or find an iteration in these: other libraries print too"""
ITERATIONS = {
    "command": ["step 1", "step 2"],
    "deepspeed": [
        "[2026-11-21 14:00:00,001] [INFO] [logging.py:96:log_dist] [Rank 0] step=1, skipped=0, lr=[0.001], mom=[0.9]",
        "[2026-11-21 14:00:01,001] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0, lr=[0.001], mom=[0.9]",
    ],
    "nanotron": [
        "iteration: 1 / 8 | time_per_iteration_ms: 250 | tokens_per_sec: 1.02K | lm_loss: 2.5",
        "iteration: 2 / 8 | time_per_iteration_ms: 240 | tokens_per_sec: 1.07K | lm_loss: 2.4",
    ],
}
"""output of two iterations; the readers of the others are tested on more lines in test_reading.py"""
EVERY_AXIS = {
    "command": "python train.py {{ dp }} {{ tp }} {{ pp }} {{ cp }} {{ ep }} {{ zero }} {{ micro_batch_size }} "
    "{{ grad_accum }} {{ recompute }} {{ pp_schedule }} {{ dtype }} {{ compile }}"
}


@pytest.fixture(params=sorted(TRAINERS))
def adapter(request):
    return TRAINER.find(request.param)


@pytest.fixture
def run(adapter):
    params = {**PARAMS.get(adapter.name, {}), **(EVERY_AXIS if adapter.name == "command" else {})}
    if adapter.name == "picotron":
        params["use_cpu"] = True
    return example_run(adapter.workload, params=params)


def test_it_states_what_every_adapter_does(adapter):
    assert TrainerParameters.defaults().keys() <= adapter.workload.params.keys()
    assert SHARED_CHOICES.keys() <= adapter.workload.choices.keys()
    assert adapter.versions
    assert not adapter.convention or adapter.convention in CONVENTIONS
    for hint in adapter.hints:
        re.compile(hint.pattern)


def test_every_axis_changes_what_it_configures_and_nothing_is_written(adapter, run, tmp_path):
    launch = adapter.configure(run, str(tmp_path), STEPS)
    assert adapter.configure(run, str(tmp_path), STEPS) == launch
    for axis, pair in variants(adapter.workload, run).items():
        try:
            first, second = (adapter.configure(one, str(tmp_path), STEPS) for one in pair)
        except ValueError:
            continue  # a value that the trainer does not have
        assert first != second, axis
    assert list(tmp_path.iterdir()) == []


def test_its_reader_reads_any_line_and_states_known_names_only(adapter, run):
    reader = adapter.reader(run)
    assert [one for line in ODD_LINES for one in reader.read(line) if one.iteration is not None] == []
    output = ITERATIONS.get(adapter.name, [])
    lines, again = ([parsed for line in output for parsed in one.read(line)] for one in map(adapter.reader, (run, run)))
    assert lines == again
    known = {*requested(run), "pp_schedule", *(field.name for field in fields(Measurement))}
    for parsed in lines:
        assert parsed.values.keys() <= set(NAMES)
        assert parsed.effective.keys() <= known
    assert not output or len({parsed.iteration for parsed in lines} - {None}) >= 2
