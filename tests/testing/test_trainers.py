"""Our own adapters declare what every adapter does, and their readers read any line; no trainer is needed."""

import re

import pytest

from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.adapter import SHARED_CHOICES, TrainerParameters
from sweep.physics.flops import CONVENTIONS
from sweep.plugins import TRAINER
from tests.support.example_runs import example_run
from tests.support.trainers.layouts import PARAMS

ODD_LINES = (
    *("", " ", "\x00", "∞ ünïcode \ud800", "step: nan loss: inf", "9" * 10_000, "{'a': [", "100%|████| 8/8"),
    *("Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "iteration: / | loss: nan"),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "[rank1]: iteration step: Step: global_step= NaN | \x00\udcff {",
)
"""no trainer's reader may raise on any line, or find an iteration in these: other libraries print too"""


@pytest.fixture(params=sorted(TRAINERS))
def adapter(request):
    return TRAINER.find(request.param)


def test_it_states_what_every_adapter_does(adapter):
    assert TrainerParameters.defaults().keys() <= adapter.workload.params.keys()
    assert SHARED_CHOICES.keys() <= adapter.workload.choices.keys()
    assert not adapter.convention or adapter.convention in CONVENTIONS
    for hint in adapter.hints:
        re.compile(hint)


def test_its_reader_reads_any_line(adapter):
    reader = adapter.reader(example_run(adapter.workload, PARAMS.get(adapter.workload.name, {})))
    assert [one for line in ODD_LINES for one in reader.read(line) if one.iteration is not None] == []
