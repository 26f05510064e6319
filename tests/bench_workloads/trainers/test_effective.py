"""Requested = effective, for each further axis: what a trainer prints of its configuration after its own changes.

`tests/support/trainers/stated/`: what Megatron-LM (d98e8a6, `_print_args` after `validate_args`), megatron-bridge 0.3.1
(`log_non_default_values` after `validate`) and torchtitan 0.3.0 printed themselves, made by the checks of
`test_validated.py`; lines of fields that nothing reads are left out. Of torchtitan, the lines of its sources, and what
the adapter's module prints of the experts once torchtitan has changed its model.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sweep.contract import FURTHER, Measurement
from sweep.plugins import TRAINER
from sweep.records.validity import mismatches
from tests.support.paths import REPOSITORY
from tests.support.trainers.layouts import EXPERTS, run_of

STATED = REPOSITORY / "tests/support/trainers/stated"
REQUESTED = yaml.safe_load(Path(__file__).with_name("requested.yaml").read_text())
(CORE, OTHER), (TITAN, OF_TITAN) = (REQUESTED[name].values() for name in ("core", "torchtitan"))
"""what was requested where the trainer stated its lines, and axis -> another request"""


def columns(run):
    return {**run.shape, **vars(run.layout), "flavor": ""}


def stated(trainer, run, lines=None):
    """What a run's reader takes of the lines."""
    reader = TRAINER.find(trainer).reader(run)
    lines = lines or (STATED / f"{trainer}.txt").read_text().splitlines()
    found = {}
    for line in lines:
        for parsed in reader.read(line):
            found |= parsed.effective
    return found


def odd(trainer, values, lines=None):
    """Names of the axes on which the run differs from the lines."""
    run = replace(run_of(trainer, shape=EXPERTS, **values), iterations=1)
    measured = Measurement(step_times_s=[1.0], effective=stated(trainer, run, lines))
    return [text.split(":")[0] for text in mismatches(run, [measured])]


@pytest.mark.parametrize("axis", sorted(OTHER))
@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_megatron_core_changed_an_axis(trainer, axis):
    assert axis in stated(trainer, run_of(trainer, shape=EXPERTS, **CORE))
    assert set(odd(trainer, CORE)) <= {"sequence_length", "dp"}
    assert odd(trainer, CORE | {axis: OTHER[axis]}) == [axis]


@pytest.mark.parametrize("trainer", ["megatron", "nemo"])
def test_an_explicit_layout_and_layers_to_recompute_that_were_dropped(trainer):
    values = CORE | {"pipeline_layout": "Et*3|t|t|t*3L", "recompute": "full", "recompute_modules": ""}
    assert {"pipeline_layout", "recompute_layers"} <= set(odd(trainer, values | {"recompute_layers": 2}))


@pytest.mark.parametrize("axis", sorted(OF_TITAN))
def test_torchtitan_changed_an_axis(axis):
    assert odd("torchtitan", TITAN) == []
    assert odd("torchtitan", TITAN | {axis: OF_TITAN[axis]}) == [axis]


def test_float8_that_torchtitan_left_out_for_an_old_torchao():
    line = (
        "Failed to use Float8 with recipe lookup because the torchao version is too old, please install torchao v0.9.0"
    )
    assert odd("torchtitan", TITAN, [line]) == ["dtype"]


def test_compiled_layers_and_overlap_that_torchtitan_left_out():
    values, mesh = {"tp": 2, "compile": True, "tp_overlap": True}, "mesh with parallelism: pp=1, dp_replicate=1, tp=2,"
    lines = [f"Building device {mesh}", "Compiling each TransformerBlock with torch.compile", "Async TP is enabled"]
    assert odd("torchtitan", values, lines) == []
    assert odd("torchtitan", values, lines[:1]) == ["tp_overlap", "compile"]


@pytest.mark.parametrize("trainer", ["megatron", "nemo", "torchtitan"])
def test_no_further_axis_of_a_trainer_is_left_out_here(trainer):
    apart = {"pipeline_layout", "recompute_layers"} if trainer != "torchtitan" else {"tp_overlap"}
    compared = apart | set(OTHER if trainer != "torchtitan" else OF_TITAN)
    assert {*FURTHER, "dtype"} & TRAINER.find(trainer).workload.axes <= compared


@pytest.mark.parametrize("trainer", ["megatron", "nemo", "torchtitan"])
def test_skewed_routing_is_refused_with_the_reason(trainer):
    run = run_of(trainer, shape=EXPERTS, dp=8, ep=2, zero=1 if trainer != "torchtitan" else 3, routing="skewed:1.2")
    (broken,) = [r for r in TRAINER.find(trainer).workload.rules if r.name == "routing" and r.broken(columns(run))]
    assert "skewed:1.2" in broken.reason.format(**columns(run))
