"""Each further axis, of each trainer: its configuration states it, or the plan refuses it and says why."""

import pytest

from bench_workloads.trainers import TRAINERS
from sweep.contract import FURTHER
from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.inputs.yaml_lines import dump
from sweep.physics.catalogue import MODELS
from sweep.planning.build import build
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER, WORKLOAD
from tests.support.trainers.layouts import EXPERTS, PARAMS, run_of

ASKED = {
    "etp": {"etp": 2},
    "virtual_stages": {"virtual_stages": 4, "pp": 2, "pp_schedule": "interleaved_1f1b", "grad_accum": 4},
    "pipeline_layout": {"pipeline_layout": "Et*4|t*4L", "pp": 2, "grad_accum": 4},
    "recompute_modules": {"recompute_modules": "moe_act", "recompute": "selective"},
    "recompute_layers": {"recompute_layers": 2, "recompute": "full"},
    "dispatcher": {"dispatcher": "hybridep", "ep": 2},
    "tp_overlap": {"tp_overlap": True, "tp": 2},
    "ep_overlap": {"ep_overlap": True, "ep": 2},
    "cuda_graphs": {"cuda_graphs": "full_iteration"},
    "fp8_params": {"fp8_params": True, "dtype": "mxfp8"},
    "routing": {"routing": "balanced"},
}
"""axis -> a value of it, with what it takes to have an effect"""
BUILT_IN = WORKLOAD.find("transformer").axes
CASES = [(trainer, axis) for trainer in sorted(TRAINERS) for axis in ASKED if trainer != "command"]
CASES += [("transformer", axis) for axis in ASKED if axis not in BUILT_IN]
"""a command's template may state any axis; what the built-in workload does is trained by the truth table"""


def test_every_axis_is_asked_for():
    assert set(ASKED) == set(FURTHER)


def written(trainer, values):
    return TRAINER.find(trainer).configure(run_of(trainer, shape=EXPERTS, dp=8, zero=3, **values), "/d", 8)


def why_not(trainer, values):
    """The plan's reasons, or the grid's error."""
    values = {"zero": "auto", "recompute": "auto", **values}
    for follows in ("grad_accum", "pp_schedule"):
        values.pop(follows, None)
    grid = {"workload": trainer, "models": {"moe": EXPERTS}, "nodes": 1, "sequence_length": 512, **values}
    grid |= {"global_batch": 2**15, "params": PARAMS.get(trainer, {}), "site": {"gpu": "b200", "gpus_per_node": 8}}
    try:
        checked = parse_grid(dump(grid), "grid.yaml")
        rows = build(checked, checked.site).table.to_pylist()
    except SweepError as error:
        return [str(error)]
    assert all(row["reasons"] for row in rows)
    return [reason for row in rows for reason in row["reasons"]]


@pytest.mark.parametrize(("trainer", "axis"), CASES)
def test_it_is_stated_or_refused_with_the_reason(trainer, axis):
    values = ASKED[axis]
    if axis in WORKLOAD.find(trainer).axes:
        plain = {name: value for name, value in values.items() if name != axis}
        assert written(trainer, values) != written(trainer, plain)
        return
    found = why_not(trainer, values)
    needed = {"recompute_modules": "selective", "fp8_params": "mxfp8"}.get(axis, axis)  # without, it has no effect
    refused = [reason for reason in found if f"cannot vary {axis}" in reason]
    assert any("possible (" in reason for reason in refused) or any(repr(needed) in reason for reason in found), found


@pytest.mark.parametrize("trainer", sorted(set(TRAINERS) - {"command", "deepspeed"}))
def test_attention_that_a_trainers_configuration_does_not_state_is_refused(trainer):
    """Megatron-LM's states latent attention and, without cp, windows; one as long as the sequence is none."""
    shape = MODELS["DeepSeek-V3"].stated()

    def refused(text, cp=1, **differing):
        run = run_of(trainer, shape=shape | differing, cp=cp)
        return any(text in reason for reason in broken_by_run(run, TRAINER.find(trainer).workload))

    assert refused("neither latent attention (kv_rank=512)") == (trainer != "megatron")
    windows = [refused("sliding window (", cp, window=size, window_layers=2) for cp in (1, 2) for size in (128, 512)]
    assert windows == [trainer != "megatron", False, True, False]
    if trainer == "megatron":
        words = TRAINER.find(trainer).configure(run_of(trainer, shape=shape), "/d", 8).program
        assert "--multi-latent-attention" in words
        assert words[words.index("--qk-pos-emb-head-dim") + 1] == "64"


def test_megatron_takes_windows_and_experts_with_biases():
    """Of GPT-OSS each second layer has a window; Megatron asserts that a group of its experts is one rank."""
    shape, workload = MODELS["GPT-OSS-20B"].stated(), TRAINER.find("megatron").workload
    words = TRAINER.find("megatron").configure(run_of("megatron", shape=shape), "/d", 8).program
    assert words[words.index("--window-size") + 1] == "127,0"
    assert words[words.index("--window-attn-skip-freq") + 1] == f"[{','.join(['1,0'] * 12)}]"

    def refused(**layout):
        found = broken_by_run(run_of("megatron", shape=shape, **layout), workload)
        return [reason for reason in found if "biases with etp: 1" in reason]

    assert refused(tp=2)
    assert not refused(tp=2, ep=2, etp=1)
    assert not refused()
