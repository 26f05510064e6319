"""The training benchmark for the planner: its declaration, its rules, and which layers go where. No torch."""

from dataclasses import asdict

import pytest

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
LATENT = {"num_kv_heads": 32, "kv_rank": 512, "rope_head_dim": 64}
EXPERTS = ModelShape(**{**LLAMA.as_dict(), "num_experts": 8, "experts_per_token": 2, "moe_intermediate_size": 14336})


def columns(shape: ModelShape = LLAMA, **values) -> dict:
    layout = {**asdict(Layout()), "grad_accum": 8}
    facts = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "compile": False}
    return {**shape.as_dict(), **layout, **facts, **WORKLOAD.params, **values}


def broken(shape: ModelShape = LLAMA, **values) -> set[str]:
    found = columns(shape, **values)
    return {rule.name for rule in RULES if rule.torch != "<2.11" and bool(rule.broken(found))}


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"tp": 16, "gpus_per_node": 16}, "kv_heads_by_tp"),
        ({"tp": 8, "intermediate_size": 14340}, "mlp_by_tp"),
        ({"tp": 4, "vocab_size": 50257}, "vocabulary_by_tp"),
        ({"tp": 4, "sequence_length": 4098}, "sequence_by_tp"),
        ({"pp": 33, "grad_accum": 64}, "layers_by_stages"),
        ({"pp": 32, "pp_schedule": "interleaved_1f1b", "grad_accum": 64}, "layers_by_stages"),
        ({"pp": 8, "grad_accum": 7}, "micro_batches"),
        ({"pp": 8, "pp_schedule": "dualpipev", "grad_accum": 15}, "micro_batches_dualpipev"),
        ({"pp": 4, "pp_schedule": "interleaved_1f1b", "grad_accum": 9}, "micro_batch_rounds"),
        ({"cp": 3}, "sequence_by_cp"),
        ({"zero": 1}, "nothing_to_shard"),
        ({"dp": 8, "zero": 3, "shard_size": 3}, "shard_size"),
        ({"dp": 8, "shard_size": 2}, "shard_size"),
        ({"norm": "layernorm"}, "norm"),
        ({"learned_positions": 4096}, "learned_positions"),
        # What would measure the same twice
        ({"data": "tokens.bin"}, "data_path"),
        ({"data": "/tokens.bin", "data_workers": -1}, "data_workers"),
        ({"data_workers": 2}, "synthetic_data"),
        ({"mtp_layers": 1, "pp": 2}, "prediction_by_pp"),
        (LATENT | {"attention": "flash"}, "latent_kernel"),
        (LATENT | {"attention": "fa3"}, "latent_kernel"),
        (LATENT | {"rope_head_dim": 0}, "rope_head_dim"),
        (LATENT | {"rope_head_dim": 7}, "rope_head_dim"),
        (LATENT | {"qk_norm": True}, "latent_extras"),
        (LATENT | {"qkv_bias": True}, "latent_extras"),
        ({"window": 16, "window_layers": 2}, "window"),
        ({"dtype": "fp8"}, "fp8"),
        ({"dtype": "mxfp8"}, "fp8"),
        ({"dtype": "fp8_rowwise", "sequence_length": 40}, "fp8_tokens"),
        ({"dtype": "fp8_rowwise", "sequence_length": 16, "cp": 2}, "fp8_tokens"),
        ({"dtype": "fp8_rowwise", "tp": 4, "num_kv_heads": 4, "head_dim": 8}, "fp8_widths"),
        (LATENT | {"dtype": "fp8_rowwise", "tp": 2}, "fp8_by_tp"),
        ({"dtype": "fp8_rowwise", "tp": 2, "mtp_layers": 1}, "fp8_by_tp"),
        ({"dtype": "fp8_rowwise", "dp": 2, "zero": 3, "fp8_params": True}, "fp8_params"),
        ({"dtype": "fp8_tensorwise", "dp": 2, "fp8_params": True}, "fp8_params"),
        ({"dtype": "bf16", "dp": 2, "zero": 3, "fp8_params": True}, "fp8_params"),
    ],
)
def test_what_cannot_work_is_rejected_with_its_reason(values, rule):
    assert broken(**values) == {rule}
    reason = next(r.reason for r in RULES if r.name == rule)
    assert "{" not in reason.format(**columns(**values))


def test_experts_are_taken_out_of_the_data_and_the_context_ranks():
    assert "ep_by_replicas" in broken(EXPERTS, ep=4, dp=2)
    assert "ep_by_replicas" not in broken(EXPERTS, ep=4, dp=2, cp=2)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"dp": 192, "tp": 2, "micro_batch_size": 3, "grad_accum": 1},
        {"dp": 4, "tp": 8, "pp": 8, "zero": 1, "grad_accum": 32},
        {"pp": 8, "pp_schedule": "zbv_zero_bubble", "grad_accum": 8},
        {"dp": 2, "pp": 2, "zero": 3, "pp_schedule": "zbv_zero_bubble", "reshard_after_forward": False},
        {"cp": 8},
        {"dp": 8, "zero": 3, "shard_size": 4},
        {"pp": 2, "tied_embeddings": True},
        {"data": "/tokens.bin", "data_workers": 2},
    ],
)
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
