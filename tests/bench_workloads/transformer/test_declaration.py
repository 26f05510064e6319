"""The training benchmark for the planner: its declaration, its rules, and which layers go where. No torch."""

from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from bench_workloads.transformer import WORKLOAD
from bench_workloads.transformer.rules import ARITHMETIC_RULES, RULES
from bench_workloads.transformer.settings import Settings
from bench_workloads.transformer.stages import layers_of_stages, stages_of_rank
from sweep.contract import Layout
from sweep.physics.schedules import LOOPED, SCHEDULES, V_SCHEDULES
from sweep.physics.shapes import ModelShape

LLAMA = ModelShape(
    num_layers=32, hidden_size=4096, num_heads=32, num_kv_heads=8, intermediate_size=14336, vocab_size=128256
)
VALUES = yaml.safe_load(Path(__file__).with_name("rejected.yaml").read_text())
EXPERTS = ModelShape(**{**LLAMA.as_dict(), "num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 14336})


def columns(shape: ModelShape = LLAMA, **values) -> dict:
    layout = {**asdict(Layout()), "grad_accum": 8}
    facts = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "compile": False}
    return {**shape.as_dict(), **layout, **facts, **WORKLOAD.params, **values}


def broken(shape: ModelShape = LLAMA, **values) -> set[str]:
    found = columns(shape, **values)
    return {rule.name for rule in RULES if rule.torch != "<2.11" and bool(rule.broken(found))}


@pytest.mark.parametrize("values", VALUES["rejected"], ids=str)
def test_what_cannot_work_is_rejected_with_its_reason(values):
    values, rule = {name: value for name, value in values.items() if name != "rule"}, values["rule"]
    assert broken(**values) == {rule}
    reason = next(r.reason for r in RULES if r.name == rule)
    assert "{" not in reason.format(**columns(**values))


def test_experts_are_taken_out_of_the_data_and_the_context_ranks():
    assert "ep_by_replicas" in broken(EXPERTS, ep=4, dp=2)
    assert "ep_by_replicas" not in broken(EXPERTS, ep=4, dp=2, cp=2)


@pytest.mark.parametrize("values", VALUES["taken"], ids=str)
def test_what_can_work_is_not_rejected(values):
    assert broken(**values) == set()


def test_arithmetic_holds_with_every_torch():
    assert all(rule.torch == "" for rule in ARITHMETIC_RULES)


@pytest.mark.parametrize("pp", [1, 2, 3, 4])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_stage_is_held_once(pp, schedule):
    held = [stage for rank in range(pp) for stage in stages_of_rank(rank, pp, schedule, 3)]
    assert len(held) == pp * (2 if schedule in V_SCHEDULES else 3 if schedule in LOOPED else 1)
    assert sorted(held) == list(range(len(held)))


@pytest.mark.parametrize(("layers", "stages"), [(8, 1), (8, 8), (36, 5), (80, 16), (7, 3)])
@pytest.mark.parametrize("last", [0.0, 1.7, 20.0])
def test_every_layer_is_held_once_and_loads_are_even(layers, stages, last):
    ranges = layers_of_stages(layers, stages, last=last)
    assert [layer for r in ranges for layer in r] == list(range(layers))
    counts = [len(r) for r in ranges]
    assert min(counts) >= 1
    assert max(counts[:-1], default=0) - min(counts[:-1], default=0) <= 1
    if stages > 1 and counts[-1] > 1:
        assert counts[-1] + last <= max(counts[:-1]) + 1


def test_too_many_stages_are_refused():
    with pytest.raises(ValueError, match="5 pipeline stages need as many layers"):
        layers_of_stages(4, 5)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="weights_dtype must be one of fp32, bf16, not 'fp16'"):
        Settings(weights_dtype="fp16")
