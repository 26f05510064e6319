"""Parameter counts and FLOPs against published figures."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest

from sweep.physics.catalogue import MODELS
from sweep.physics.flops import CONVENTIONS, hardware_flops_per_token, model_flops_per_token, utilisation
from sweep.physics.hardware import GPUS
from sweep.physics.shapes import (
    ModelShape,
    active_parameters,
    matmul_parameters,
    shape_columns,
    total_parameters,
)

REFERENCE = os.environ.get("SWEEP_REFERENCE_DATA")
reference = pytest.mark.skipif(not REFERENCE, reason="SWEEP_REFERENCE_DATA is not set")


def rows(name):
    with (Path(REFERENCE) / name).open() as file:
        return list(csv.DictReader(file))


def mosaic_shape(row, sequence=2048):
    """llm-foundry's MPT: learned positions, biases everywhere, GELU."""
    return ModelShape(
        num_layers=int(row["n_layers"]),
        hidden_size=int(row["d_model"]),
        num_heads=int(row["n_heads"]),
        intermediate_size=int(row["ffn_hidden"]),
        vocab_size=int(row["vocab_size"]),
        tied_embeddings=True,
        gated_mlp=False,
        norm="layernorm",
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        learned_positions=sequence,
    )


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [  # published on the model cards, or printed by transformers' num_parameters()
        ("SmolLM3-3B", 3_075_098_624, 3_075_098_624),
        ("Llama-2-7B", 6_738_415_616, 6_738_415_616),
        ("Llama-3-8B", 8_030_261_248, 8_030_261_248),
        ("Llama-3-70B", 70_553_706_496, 70_553_706_496),
        ("Llama-3.1-405B", 405_853_388_800, 405_853_388_800),
        ("Llama-3.2-1B", 1_235_814_400, 1_235_814_400),
        ("Mixtral-8x7B", 46_702_792_704, 12_879_925_248),
        ("Mixtral-8x22B", 140_630_071_296, 39_161_468_928),
    ],
)
def test_published_parameter_counts(name, total, active):
    assert total_parameters(MODELS[name]) == total
    assert active_parameters(MODELS[name]) == active


@reference
def test_mosaic_parameters_are_exact():
    found = {row["model"]: total_parameters(mosaic_shape(row)) for row in rows("mosaic_mpt_architectures.csv")}
    assert found == {r["model"]: int(r["params_at_seq_2048"]) for r in rows("mosaic_mpt_architectures.csv")}


@reference
def test_playbook_parameters_are_exact():
    for row in rows("playbook_models.csv"):
        shape = MODELS[row["model_label"]]
        norms = (2 * shape.num_layers + 1) * shape.hidden_size
        assert total_parameters(shape) - norms == int(row["params_exact_no_norms"])


def test_counts_of_columns_equal_counts_of_each_shape():
    shapes = list(MODELS.values())
    names = shapes[0].as_dict()
    columns = shape_columns({name: np.array([getattr(s, name) for s in shapes]) for name in names})
    for count in (total_parameters, active_parameters, matmul_parameters):
        assert count(columns).tolist() == [count(shape) for shape in shapes]


def test_shape_derives_omitted_fields_and_round_trips():
    shape = ModelShape(num_layers=2, hidden_size=64, num_heads=4, intermediate_size=128, vocab_size=100)
    assert (shape.num_kv_heads, shape.head_dim, shape.moe_intermediate_size) == (4, 16, 0)
    assert ModelShape(**shape.as_dict()) == shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 0}, "num_layers must be positive"),
        ({"num_kv_heads": 3}, "not a multiple of num_kv_heads"),
        ({"norm": "batchnorm"}, "norm is one of"),
        ({"num_experts": 4}, "experts_per_token must be 1 to num_experts"),
        ({"shared_experts": 1}, "need num_experts"),
        ({"dense_layers": 5, "num_experts": 4, "experts_per_token": 1}, "under num_layers"),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    values = {"num_layers": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    with pytest.raises(ValueError, match=message):
        ModelShape(**(values | change))


@reference
def test_llm_foundry_mfu_and_hfu():
    """Published to two decimals; A100 bf16, 6 N + 12 L d T, HFU 4/3 with checkpointing."""
    shapes = {row["model"]: row for row in rows("mosaic_mpt_architectures.csv")}
    convention, checked = CONVENTIONS["llm-foundry"], 0
    for row in rows("mosaic_mpt_benchmarks.csv"):
        if not row["gpu"].startswith("a100") or "fp8" in row["precision"]:
            continue
        sequence = int(row["seq_len"])
        shape = mosaic_shape(shapes[row["model"]], sequence)
        rate = float(row["throughput_tok_per_s"]) / int(row["num_gpus"])
        recompute = "full" if row["activation_checkpointing"] == "True" else "none"
        peak = GPUS["a100"].peak_flops("bf16")
        mfu = utilisation(rate, model_flops_per_token(shape, sequence, convention), peak)
        hfu = utilisation(rate, hardware_flops_per_token(shape, sequence, recompute, convention), peak)
        assert 100 * mfu == pytest.approx(float(row["mfu_pct"]), rel=5e-4)
        assert 100 * hfu == pytest.approx(float(row["hfu_pct"]), rel=5e-4)
        checked += 1
    assert checked > 50


@reference
def test_megatron_2020_tflops_from_iteration_times():
    """96 B s L h^2 (1 + s/6h + V/16Lh) with full recomputation, s = 1024, V = 51200."""
    for row in rows("megatron_2020_iteration_times.csv"):
        layers, hidden = int(row["num_layers"]), int(row["hidden_size"])
        shape = ModelShape(
            num_layers=layers,
            hidden_size=hidden,
            num_heads=int(row["num_heads"]),
            intermediate_size=4 * hidden,
            vocab_size=51200,
            tied_embeddings=True,
            gated_mlp=False,
        )
        tokens_per_gpu = int(row["global_batch_size"]) * 1024 / int(row["num_gpus"])
        rate = tokens_per_gpu / (float(row["iteration_time_ms"]) / 1000)
        flops = hardware_flops_per_token(shape, 1024, "full", CONVENTIONS["megatron"])
        assert rate * flops / 1e12 == pytest.approx(float(row["tflops_per_gpu"]), rel=1.5e-3)


def test_full_recomputation_is_equation_3_of_2104_04473():
    batch, s, layers, h, vocab = 1, 2048, 48, 8192, 51200
    shape = ModelShape(
        num_layers=layers, hidden_size=h, num_heads=64, intermediate_size=4 * h, vocab_size=vocab, gated_mlp=False
    )
    exact = 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h))
    assert s * hardware_flops_per_token(shape, s, "full", CONVENTIONS["megatron"]) == pytest.approx(exact, rel=1e-12)
    model = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h))
    assert s * model_flops_per_token(shape, s, CONVENTIONS["megatron"]) == pytest.approx(model, rel=1e-12)
    selective = 72 * batch * s * layers * h**2 * (1 + s / (3 * h) + vocab / (12 * layers * h))
    printed = s * hardware_flops_per_token(shape, s, "selective", CONVENTIONS["megatron"])
    assert printed == pytest.approx(selective, rel=1e-12)


def test_causal_attention_counts_half():
    shape = MODELS["8B"]
    full = model_flops_per_token(shape, 4096, CONVENTIONS["matmul"])
    causal = model_flops_per_token(shape, 4096, CONVENTIONS["matmul-causal"])
    assert full - causal == 6 * shape.num_layers * shape.hidden_size * 4096


def test_unknown_peak_gives_no_utilisation():
    assert GPUS["cpu"].peak_flops("fp32") is None
    assert utilisation(1000.0, 1e9, GPUS["cpu"].peak_flops("fp32")) is None
    assert utilisation(None, 1e9, 1e12) is None


def test_every_gpu_names_its_source_and_has_sane_figures():
    for gpu in GPUS.values():
        assert gpu.source
        if gpu.name != "cpu":
            assert gpu.memory_bytes is not None
            assert 16e9 <= gpu.memory_bytes <= 256e9
            assert gpu.peak_flops("fp16") is not None
            assert gpu.peak_flops("fp16") >= 121e12


@reference
def test_playbook_mfu():
    """6 N + 12 L h s over 989 TFLOP/s, N with embeddings, to the rounding of N; tied models only without a pipeline,
    where the embedding was not counted twice."""
    checked = 0
    for row in rows("playbook_runs.csv"):
        shape = MODELS[row["model_label"]]
        if row["status"] != "success" or (shape.tied_embeddings and row["pp"] != "1"):
            continue
        flops = model_flops_per_token(shape, int(row["seq_len"]), CONVENTIONS["playbook"])
        mfu = utilisation(float(row["tok_s_gpu"]), flops, GPUS["h100"].peak_flops("bf16"))
        assert 100 * mfu == pytest.approx(float(row["mfu_pct"]), rel=2.5e-3)
        checked += 1
    assert checked > 500


@reference
def test_nemo_tflops_of_dense_models():
    """NeMo 24.x counts full attention, Megatron-Bridge from 25.09 on the causal half."""
    shapes = {
        row["model"]: ModelShape(
            num_layers=int(row["num_layers"]),
            hidden_size=int(row["hidden_size"]),
            num_heads=int(row["num_heads"]),
            num_kv_heads=int(row["num_kv_heads"]),
            intermediate_size=int(row["ffn_hidden"]),
            vocab_size=int(row["vocab_size"]),
            gated_mlp=row["gated_mlp"] == "1",
        )
        for row in rows("nemo_models.csv")
    }
    checked = {"nemo": 0, "megatron-bridge": 0}
    for row in rows("nemo_performance.csv"):
        preset = "nemo" if "NeMo24" in row["container"] else "megatron-bridge"
        rounded = row["container"].startswith("26")
        usable = row["tflops_gpu"].isdigit() and row["tok_s_gpu"].isdigit() and row["malformed_row"] == "False"
        if row["model"] not in shapes or not usable or "Pre" not in row["section"]:
            continue
        if preset == "megatron-bridge" and not row["model"].upper().startswith("LLAMA"):
            continue
        flops = model_flops_per_token(shapes[row["model"]], int(row["seq_len"]), CONVENTIONS[preset])
        tolerance = 2.5e-2 if rounded else 2e-3
        assert float(row["tok_s_gpu"]) * flops / 1e12 == pytest.approx(
            float(row["tflops_gpu"]), rel=tolerance, abs=0.6
        ), row
        checked[preset] += 1
    assert checked["nemo"] > 10
    assert checked["megatron-bridge"] > 20


@reference
def test_torchtitan_mfu():
    """2024-04: with the input embedding, A100; the corrected 405B rows of 2024-08: without it, H100, bf16 and fp8."""
    names = {
        "llama2-13B": "Llama-2-13B",
        "llama2-70B": "Llama-2-70B",
        "llama3-8B": "Llama-3-8B",
        "llama3-70B": "Llama-3-70B",
        "llama3.1-405B": "Llama-3.1-405B",
    }
    checked = wrong = 0
    for row in rows("torchtitan_performance.csv"):
        if not row["mfu_pct"].replace(".", "").isdigit():
            continue
        old = row["table"].startswith("2024-04")
        gpu, preset = ("a100", "torchtitan-2024-04") if old else ("h100", "torchtitan")
        flops = model_flops_per_token(MODELS[names[row["model"]]], int(row["seq_len"]), CONVENTIONS[preset])
        dtype = "fp8" if not old and float(row["tps_per_gpu"]) > 150 else "bf16"
        mfu = 100 * utilisation(float(row["tps_per_gpu"]), flops, GPUS[gpu].peak_flops(dtype))
        if "first, corrected" in row["table"]:
            wrong += abs(mfu / float(row["mfu_pct"]) - 1) > 0.1
            continue
        assert mfu == pytest.approx(float(row["mfu_pct"]), rel=2.5e-3), row
        checked += 1
    assert checked >= 10
    assert wrong == 3
