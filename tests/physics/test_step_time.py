"""The step-time model: how it ranks published runs, and what must hold whatever its constants."""

from dataclasses import replace

import numpy as np
import pytest

from sweep.physics.catalogue import MODELS
from sweep.physics.hardware import GPUS
from sweep.physics.profiles import PROFILES
from sweep.physics.schedules import SCHEDULES
from sweep.physics.step_time import predict, step_time_s
from tests.support.published import column, playbook, rows

H100, NANOTRON = GPUS["h100"], PROFILES["nanotron"]


def tokens_per_second_per_gpu(layout, gpu, *profile):
    gpus = layout["dp"] * layout["tp"] * layout.get("pp", 1) * layout.get("cp", 1)
    tokens = layout["dp"] * layout["micro_batch_size"] * layout.get("grad_accum", 1) * layout["sequence_length"]
    return tokens / step_time_s(layout, gpu, *profile) / gpus


def columns(model="8B", **layout):
    base = {"sequence_length": 4096, "gpus_per_node": 8, "dtype": "bf16", "grad_accum": 8}
    return MODELS[model].as_dict() | base | layout


def test_order_within_cells_agrees_with_measurement():
    found = [row for row in rows("playbook_runs.csv") if row["status"] == "success"]
    speed = tokens_per_second_per_gpu(playbook(found) | {"dtype": "bf16"}, H100, NANOTRON)
    measured = column(found, "tok_s_gpu")
    cells = column(found, "model_label", str).astype(object) + column(found, "nodes", str).astype(object)
    correlations = []
    for cell in set(cells):
        mine = cells == cell
        ranks = [np.argsort(np.argsort(values[mine])) for values in (speed, measured)]
        correlations.append(np.corrcoef(*ranks)[0, 1])
    assert np.mean(correlations) > 0.85


@pytest.mark.parametrize("trainer", ["builtin", "nanotron", "megatron"])
def test_without_a_pipeline_every_schedule_takes_the_same_time(trainer):
    found = {
        float(step_time_s(columns(pp_schedule=schedule, dp=8, virtual_stages=3), H100, PROFILES[trainer]))
        for schedule in SCHEDULES
    }
    assert len(found) == 1


@pytest.mark.parametrize("experts", [1, 8])
def test_of_a_model_whose_layers_are_all_mixtures_the_dense_width_takes_no_time(experts):
    found = []
    for width in (384, 4096):
        shape = replace(MODELS["tiny-moe"], num_experts=experts, experts_per_token=1, intermediate_size=width)
        layout = shape.as_dict() | {"sequence_length": 4096, "dp": 2, "zero": 1, "gpus_per_node": 8}
        found.append(predict(layout, H100, PROFILES["megatron"]))
    assert found[0] == found[1]


@pytest.mark.parametrize("trainer", ["builtin", "megatron", "torchtitan"])
def test_a_run_that_is_not_compiled_is_one_of_which_nothing_is_stated(trainer):
    plain, off, on = (
        predict(columns(dp=8, tp=2, **one), H100, PROFILES[trainer])
        for one in ({}, {"compile": False}, {"compile": True})
    )
    assert off == plain
    assert on["memory"] < plain["memory"]


def test_models_in_columns_take_as_long_as_each_alone():
    """Dense, a mixture with a shared expert and one without: what one has is no part of another's step."""
    shapes = [MODELS["tiny-1M"], MODELS["tiny-moe"], replace(MODELS["tiny-moe"], shared_experts=0)]
    layout = {"sequence_length": 512, "gpus_per_node": 8, "dtype": "bf16", "dp": 2, "tp": 2, "zero": 1}
    names = shapes[0].as_dict()
    both = {name: np.array([shape.as_dict()[name] for shape in shapes]) for name in names} | layout
    with np.errstate(divide="raise", invalid="raise"):
        found = predict(both, H100, PROFILES["megatron"])
    for at, shape in enumerate(shapes):
        alone = predict(shape.as_dict() | layout, H100, PROFILES["megatron"])
        assert {name: np.broadcast_to(value, 3)[at] for name, value in found.items()} == pytest.approx(alone)


def test_the_stage_that_takes_longest_counts_whichever_it_is():
    """By the vocabulary, whose projection is on the last rank; in V schedules on the first: then others are longest."""
    ours = PROFILES["builtin"]
    layer_s = predict(columns(pp=4, vocab_size=1000), H100, ours)["attention"] / 8
    for vocabulary, schedule, layers in (
        (500_000, "1f1b", 10),
        (2_000_000, "1f1b", 1),
        (128_256, "zbv_zero_bubble", 9),
        (500_000, "zbv_zero_bubble", 6),
    ):
        found = predict(columns(pp=4, vocab_size=vocabulary, pp_schedule=schedule), H100, ours)
        assert found["attention"] == pytest.approx(layers * layer_s), (vocabulary, schedule)


def test_what_hosts_wait_that_sends_block_is_a_part_of_its_own():
    """So that transfers and launches that were measured do not say how long it takes where it was not."""
    layout = columns("1B", pp=2, dp=8, zero=1)
    parts = {trainer: predict(layout, H100, PROFILES[trainer]) for trainer in ("nanotron", "megatron")}
    assert parts["nanotron"]["blocked"] > 0.1 * sum(parts["nanotron"].values())
    assert parts["nanotron"]["launch"] < 0.1 * parts["nanotron"]["blocked"]
    assert parts["megatron"]["blocked"] == predict(layout | {"dp": 4}, H100, NANOTRON)["blocked"] == 0


def test_tensor_parallelism_gathers_in_the_bits_of_the_products_where_the_trainer_does():
    """Megatron: of two gathers and two scatters the gathers have half the bytes in 8 bits."""
    for trainer, share in (("megatron", 0.75), ("torchtitan", 1.0)):
        bf16, fp8 = (
            float(predict(columns(tp=8, dtype=dtype, sequence_length=65536), H100, PROFILES[trainer])["tensor"])
            for dtype in ("bf16", "mxfp8")
        )
        assert fp8 / bf16 == pytest.approx(share, rel=0.02)


def test_what_selective_recomputation_repeats_is_what_it_names():
    base = {**MODELS["DeepSeek-V3"].as_dict(), "sequence_length": 4096, "ep": 8, "dp": 8, "recompute": "selective"}
    found = {
        modules: predict(base | {"recompute_modules": modules}, H100, PROFILES["megatron"])
        for modules in ("", "core_attn", "mla_up_proj", "moe_act", "mlp", "moe")
    }
    attention, matmul = ({name: float(one[part]) for name, one in found.items()} for part in ("attention", "matmul"))
    assert attention[""] == attention["core_attn"] > attention["moe_act"] == attention["mla_up_proj"]
    assert 1.01 * matmul["moe_act"] < matmul["mla_up_proj"] < 1.05 * matmul["moe_act"]
    assert matmul["moe_act"] < matmul["mlp"] < 1.02 * matmul["moe_act"], "of three dense layers"
    assert 1.15 * matmul["moe_act"] < matmul["moe"] < 4 / 3 * matmul["moe_act"], "of a forward the most"
    assert found["moe"]["expert"] == pytest.approx(1.5 * found["moe_act"]["expert"]), "and a third exchange"
    dense = {**MODELS["Llama-3-70B"].as_dict(), "sequence_length": 4096, "tp": 4, "recompute": "selective"}
    core, mlp, moe = (
        predict(dense | {"recompute_modules": one}, H100, PROFILES["megatron"]) for one in ("core_attn", "mlp", "moe")
    )
    assert 1.2 * core["matmul"] < mlp["matmul"] < 4 / 3 * core["matmul"]
    assert (mlp["tensor"], moe["matmul"]) == (pytest.approx(1.25 * core["tensor"]), core["matmul"])
    host = {**MODELS["Qwen3-30B-A3B"].as_dict(), "sequence_length": 4096, "ep": 8, "dp": 8, "dtype": "mxfp8"}
    core, moe, full = (
        step_time_s(host | dict(zip(("recompute", "recompute_modules"), one, strict=True)), GPUS["b200"],
                    PROFILES["megatron"]) for one in (("selective", ""), ("selective", "moe"), ("full", ""))
    )  # fmt: skip
    assert 1.2 * core < moe < full, "where the GPU waits for the host, which launches them again"
