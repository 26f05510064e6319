"""Parameter counts and FLOPs against published figures."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from benchmarks.reference_tables import gpt, nemo_shape
from sweep.physics import shapes
from sweep.physics.catalogue import MODELS
from sweep.physics.flops import (
    CONVENTIONS,
    attention_forward_flops_per_token,
    counted_parameters,
    hardware_flops_per_token,
    model_flops_per_token,
    utilisation,
)
from sweep.physics.hardware import GPUS
from sweep.physics.shapes import (
    ModelShape,
    active_parameters,
    embedding_parameters,
    input_embedding_parameters,
    matmul_parameters,
    shape_columns,
    total_parameters,
)
from tests.support.published import rows


def mosaic_shape(row, sequence=2048):
    assert int(row["ffn_hidden"]) == 4 * int(row["d_model"])
    sizes = (int(row[name]) for name in ("d_model", "n_heads", "vocab_size"))
    return gpt(int(row["n_layers"]), *sizes, sequence)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [  # published on the model cards, or printed by transformers' num_parameters()
        ("SmolLM3-3B", 3_075_098_624, 3_075_098_624),
        ("Llama-2-7B", 6_738_415_616, 6_738_415_616),
        ("Llama-2-13B", 13_015_864_320, 13_015_864_320),
        ("Llama-2-70B", 68_976_648_192, 68_976_648_192),
        ("Llama-3.2-3B", 3_212_749_824, 3_212_749_824),
        ("Llama-3-8B", 8_030_261_248, 8_030_261_248),
        ("Llama-3.1-8B", 8_030_261_248, 8_030_261_248),
        ("Llama-3-70B", 70_553_706_496, 70_553_706_496),
        ("Llama-3.1-405B", 405_853_388_800, 405_853_388_800),
        ("Llama-3.2-1B", 1_235_814_400, 1_235_814_400),
        ("Mixtral-8x7B", 46_702_792_704, 12_879_925_248),
        ("Mixtral-8x22B", 140_630_071_296, 39_161_468_928),
        ("Qwen3-0.6B", 596_049_920, 596_049_920),
        ("Qwen3-8B", 8_190_735_360, 8_190_735_360),
        ("Qwen3-32B", 32_762_123_264, 32_762_123_264),
        ("Qwen3-30B-A3B", 30_532_122_624, 3_353_032_704),
        ("Qwen3-235B-A22B", 235_093_634_560, 22_190_763_520),
        ("Gemma-2B", 2_506_172_416, 2_506_172_416),
        ("Gemma-7B", 8_537_680_896, 8_537_680_896),
    ],
)
def test_published_parameter_counts(name, total, active):
    assert total_parameters(MODELS[name]) == total
    assert active_parameters(MODELS[name]) == active


def test_latent_attention_of_published_models():
    """config.json of deepseek-ai/DeepSeek-V3 and moonshotai/Kimi-K2-Base; 37 and 32 billion active by their cards."""
    for name, total, active, width in (("DeepSeek-V3", 671, 37, 128), ("Kimi-K2", 1026, 32, 64)):
        shape = MODELS[name]
        latents = (shape.kv_rank, shape.q_rank, shape.rope_head_dim, shape.head_dim, shape.num_heads)
        assert latents == (512, 1536, 64, 128, width)
        assert round(total_parameters(shape) / 1e9) == total
        beside = input_embedding_parameters(shape)  # no matrix that a token is multiplied by
        assert active - 1 <= (active_parameters(shape) - beside) / 1e9 <= active + 1


@pytest.mark.parametrize(("name", "embeddings", "rest"), [("Nemotron-15B", 3.2, 12.5), ("Nemotron-340B", 9.4, 331.6)])
def test_weights_of_nemotron(name, embeddings, rest):
    """Billions, arXiv 2402.16819 table 1 and 2406.11704 table 1."""
    ends = embedding_parameters(MODELS[name])
    assert ends / 1e9 == pytest.approx(embeddings, abs=0.06)
    assert (total_parameters(MODELS[name]) - ends) / 1e9 == pytest.approx(rest, rel=0.005)


@pytest.mark.parametrize(
    ("name", "published", "beyond"),
    [  # what the shape leaves out, as the catalogue says: sinks and router biases; latent attention
        ("GPT-OSS-20B", 20_914_757_184, -24 * (64 + 32)),
        ("GPT-OSS-120B", 116_829_156_672, -36 * (64 + 128)),
    ],
)
def test_what_a_shape_leaves_out_is_known_exactly(name, published, beyond):
    assert total_parameters(MODELS[name]) == published + beyond


def test_mosaic_parameters_are_exact():
    found = {row["model"]: total_parameters(mosaic_shape(row)) for row in rows("mosaic_mpt_architectures.csv")}
    assert found == {r["model"]: int(r["params_at_seq_2048"]) for r in rows("mosaic_mpt_architectures.csv")}


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
        *(({name: value}, f"{name} must") for name in ("num_layers", "hidden_size", "vocab_size") for value in (0, -1)),
        *(({name: -1}, f"{name} must") for name in ("num_heads", "head_dim", "learned_positions")),
        ({"num_kv_heads": 3}, "not a multiple of num_kv_heads"),
        ({"norm": "batchnorm"}, "norm is one of"),
        *(({"num_experts": 4, "experts_per_token": n}, "experts_per_token must be 1 to num_experts") for n in (0, 5)),
        *(({name: 1}, "need num_experts") for name in ("experts_per_token", "shared_experts", "dense_layers")),
        ({"dense_layers": 2, "num_experts": 4, "experts_per_token": 1}, "under num_layers"),
        *(({name: 1}, "need kv_rank") for name in ("q_rank", "rope_head_dim")),
        *(({"window": w, "window_layers": n}, "belong together") for w, n in ((1, 0), (0, 1), (1, 3))),
    ],
)
def test_impossible_shapes_are_refused(change, message):
    values = {"num_layers": 2, "hidden_size": 64, "num_heads": 4, "intermediate_size": 128, "vocab_size": 100}
    with pytest.raises(ValueError, match=message):
        ModelShape(**(values | change))


def test_a_mixture_uses_up_to_all_of_its_experts_and_has_one_layer_of_them_at_least():
    given = MODELS["tiny-moe"].as_dict()
    for change in (
        {"experts_per_token": 1},
        {"experts_per_token": 8},
        {"dense_layers": 3},
        {"window": 8, "window_layers": 1},
    ):
        assert ModelShape(**given | change)


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


def test_every_gpu_names_its_source_and_has_sane_figures():
    for gpu in GPUS.values():
        assert gpu.source
        if gpu.name != "cpu":
            assert gpu.memory_bytes is not None
            assert 16e9 <= gpu.memory_bytes <= 288e9
            assert gpu.peak_flops("fp16") is not None
            assert gpu.peak_flops("fp16") >= 65e12


def test_every_kind_that_a_team_would_name_is_known():
    asked = "a100 a100-40gb a100-pcie a100-pcie-40gb a800 h100 h100-pcie h100-nvl h800 h200 h200-nvl h20 gh200 b200"
    asked += " gb200 b300 gb300 l40s l40 l4 a10 a30 a40 a6000 v100 v100-16gb v100-pcie t4 mi250x mi300x mi325x mi355x"
    assert set(asked.split()) <= set(GPUS)


@pytest.mark.parametrize(
    ("system", "gpus", "kind", "memory", "fp4", "sparse_fp8", "bandwidth"),
    [  # totals of NVIDIA's data sheets: TB, PFLOPS dense fp4, PFLOPS sparse fp8, TB/s
        ("DGX B200", 8, "b200", 1.44, 72, 72, 64),
        ("HGX B300", 8, "b300", 2.1, 108, 72, 64),
        ("GB200 NVL72", 72, "gb200", 13.4, 720, 720, 576),
        ("GB300 NVL72", 72, "gb300", 20, 1080, 720, 576),
    ],
)
def test_blackwell_kinds_add_up_to_their_systems(system, gpus, kind, memory, fp4, sparse_fp8, bandwidth):
    gpu = GPUS[kind]
    assert gpus * gpu.memory_bytes / 1e12 == pytest.approx(memory, rel=0.03)
    assert gpus * gpu.peak_flops("fp4") / 1e15 == pytest.approx(fp4, rel=1e-3)
    assert 2 * gpus * gpu.peak_flops("fp8") / 1e15 == pytest.approx(sparse_fp8, rel=1e-3)
    assert gpus * gpu.memory_bytes_per_s / 1e12 == pytest.approx(bandwidth, rel=1e-3)


def test_peaks_of_one_gpu_keep_the_ratios_of_tensor_cores():
    """Half the bits, twice the products: what a mistyped figure breaks."""
    for gpu in GPUS.values():
        peak = gpu.peaks_flops
        if "fp8" in peak:
            assert peak["fp8"] == pytest.approx(2 * peak["bf16"], rel=0.02), gpu.name
        if "bf16" in peak:
            assert peak["bf16"] == peak["fp16"], gpu.name
            assert peak["bf16"] == pytest.approx(2 * peak.get("tf32", peak["bf16"] / 2), rel=0.02), gpu.name


def test_v100_tables_count_eight_flops_per_parameter_and_token():
    """8 s size: four passes over every parameter, whatever the shape; attention is not counted.

    bigscience's one-liner: size in 10^9 * 4 * 2 * sequence * batch / (seconds * GPUs * 1e3), with its own example.
    """
    size, sequences, step_s, gpus = 52, 1024, 127, 64
    one_liner = size * 4 * 2 * 2048 * sequences / (step_s * gpus * 1e3)
    convention = CONVENTIONS["bigscience-v100"]
    flops = hardware_flops_per_token(MODELS["8B"], 2048, "full", convention, stated=size * 10**9)
    assert sequences * 2048 / (step_s * gpus) * flops / 1e12 == pytest.approx(one_liner, rel=1e-12)
    assert model_flops_per_token(MODELS["8B"], 2048, convention, stated=size * 10**9) == 6 * size * 10**9
    by_shape = hardware_flops_per_token(MODELS["8B"], 2048, "full", convention)
    assert by_shape == 8 * total_parameters(MODELS["8B"])


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


def test_nemo_tflops_of_dense_models():
    """NeMo 24.x counts full attention, Megatron-Bridge from 25.09 on the causal half."""
    shapes = {row["model"]: nemo_shape(row) for row in rows("nemo_models.csv")}
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


def test_parameters_without_the_input_embedding_keep_one_that_is_the_output_too():
    convention = CONVENTIONS["torchtitan"]
    own, tied = MODELS["8B"], replace(MODELS["8B"], tied_embeddings=True)
    embedding = own.vocab_size * own.hidden_size
    assert counted_parameters(own, convention) == shapes.active_parameters(own) - embedding
    assert counted_parameters(tied, convention) == shapes.active_parameters(tied)


@pytest.mark.parametrize(("name", "without_norms"), [
    ("1B", 1_342_177_280), ("3B", 3_573_547_008), ("8B", 8_858_370_048), ("80B", 79_993_765_888),
])  # fmt: skip
def test_the_playbooks_models_are_those_of_its_benchmarks(name, without_norms):
    """huggingface/nanotron, scripts/scaling_benchmarks.py: as many kv heads as heads; norms are not counted there."""
    shape = MODELS[name]
    assert total_parameters(shape) - (2 * shape.num_layers + 1) * shape.hidden_size == without_norms
    assert shape.num_kv_heads == shape.num_heads


def test_the_playbooks_70b_is_its_80b_with_eight_kv_heads():
    """14 of its rows that are labelled 80 B imply 70.6 B parameters."""
    assert MODELS["70B"] == replace(MODELS["80B"], num_kv_heads=8)
    assert total_parameters(MODELS["70B"]) / 1e9 == pytest.approx(70.6, abs=0.05)


@pytest.mark.parametrize(("name", "parameters", "tp", "kv", "pp"), [
    ("tiny-1M", 1.0e6, 4, 2, 4), ("tiny-4M", 4.0e6, 4, 2, 4), ("tiny-16M", 16e6, 4, 2, 4),
    ("tiny-6heads", 3e6, 6, 3, 6),
    ("tiny-moe", 3e6, 4, 2, 4),
])  # fmt: skip
def test_tiny_models_are_of_the_size_in_their_name_and_can_be_cut_every_way(name, parameters, tp, kv, pp):
    """On CPUs and in tests: heads, kv heads and layers divide evenly, and embeddings are untied."""
    shape = MODELS[name]
    assert total_parameters(shape) == pytest.approx(parameters, rel=0.25)
    assert (shape.num_heads % tp, shape.num_kv_heads % kv, shape.num_layers % pp) == (0, 0, 0)
    assert not shape.tied_embeddings
    if name == "tiny-moe":
        assert (shape.num_experts, shape.experts_per_token, shape.shared_experts) == (8, 2, 1)


@pytest.mark.parametrize("name", [name for name, shape in MODELS.items() if not shape.mlp_bias])
def test_what_a_token_is_multiplied_by_is_active_but_norms_and_the_input_embedding(name):
    """A tied embedding is multiplied by as the output projection."""
    shape = MODELS[name]
    each = 2 * shape.head_dim * shape.qk_norm + shape.q_rank + shape.kv_rank
    norms = (2 * shape.num_layers + 1) * shape.hidden_size + shape.num_layers * each
    norms *= 1 + (shape.norm == "layernorm")
    looked_up = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    assert matmul_parameters(shape) == active_parameters(shape) - norms - looked_up


@pytest.mark.parametrize("name", ["8B", "Qwen3-30B-A3B"])
def test_a_layer_of_multi_token_prediction_is_a_layer_its_projection_and_the_output_again(name):
    shape, output = MODELS[name], input_embedding_parameters(MODELS[name])
    layer = (matmul_parameters(shape) - output) / shape.num_layers
    further = matmul_parameters(replace(shape, mtp_layers=1)) - matmul_parameters(shape)
    assert further == layer + 2 * shape.hidden_size**2 + output
    pairs = [attention_forward_flops_per_token(replace(shape, **{name: getattr(shape, name) + 1}), 4096, "full")
             for name in ("num_layers", "mtp_layers")]  # fmt: skip
    assert pairs[0] == pairs[1]


def test_a_mixture_of_one_expert_is_the_dense_model_of_its_width_with_a_router():
    dense = MODELS["tiny-1M"]
    one = replace(dense, num_experts=1, experts_per_token=1, moe_intermediate_size=192)
    narrow = replace(dense, intermediate_size=192)
    for count in (total_parameters, active_parameters, matmul_parameters):
        assert count(one) == count(narrow) + dense.num_layers * dense.hidden_size


@pytest.mark.parametrize(("change", "more"), [
    ({"norm": "layernorm"}, (2 * 4 + 1) * 128), ({"qk_norm": True}, 4 * 2 * 32),
    ({"qkv_bias": True}, 4 * 32 * (4 + 2 * 2)), ({"attention_output_bias": True}, 4 * 128),
    ({"mlp_bias": True}, 4 * (2 * 384 + 128)),
    ({"mlp_bias": True, "gated_mlp": False}, 4 * (384 + 128) - 4 * 128 * 384),
    ({"gated_mlp": False}, -4 * 128 * 384), ({"tied_embeddings": True}, -1024 * 128),
    ({"learned_positions": 7}, 7 * 128), ({"mtp_layers": 1}, (3 * 128 + 3 * 384 + 2) * 128 + 2 * 128**2 + 3 * 128),
])  # fmt: skip
def test_each_choice_of_a_model_adds_its_own_parameters(change, more):
    """tiny-1M: 4 layers of 128, 4 heads and 2 kv heads of 32, a gated MLP of 384, a vocabulary of 1,024."""
    plain = MODELS["tiny-1M"]
    assert total_parameters(replace(plain, **change)) - total_parameters(plain) == more


@pytest.mark.parametrize("wrong", [{"num_layers": "4"}, {"num_layers": 4.0}, {"qk_norm": 1}, {"layers": 4}])
def test_a_shape_of_a_file_has_whole_numbers_and_only_known_names(wrong):
    """A text or a fraction where a number of layers is meant is a mistake to show, not to convert."""
    given = MODELS["tiny-1M"].as_dict()
    assert TypeAdapter(ModelShape).validate_json(json.dumps(given)) == MODELS["tiny-1M"]
    assert ModelShape.of(given) == MODELS["tiny-1M"]
    for read in (ModelShape.of, lambda values: TypeAdapter(ModelShape).validate_json(json.dumps(values))):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            read(given | wrong)


def test_a_shape_of_a_record_has_all_of_its_sizes_in_63_bits():
    sizes = {"num_layers": 1, "hidden_size": 1, "num_heads": 1, "intermediate_size": 1, "vocab_size": 2**63 - 1}
    assert ModelShape.of(sizes).vocab_size == 2**63 - 1
    for wrong, message in ((sizes | {"vocab_size": 2**63}, "vocab"), ({"num_layers": 1}, "hidden"), ([1], "fields")):
        with pytest.raises(ValueError, match=message):
            ModelShape.of(wrong)


def test_latent_attention_counts_deepseeks_parameters_and_windows_and_prediction_layers_nvidias_flops():
    """671,026,404,352 weights in deepseek-ai/DeepSeek-V3 without the MTP layer (model.safetensors.index.json); TFLOPS
    over tokens/s of NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, 067f987: 1276 of 4912 and 934 of 28672.
    """
    deepseek = MODELS["DeepSeek-V3"]
    assert shapes.total_parameters(deepseek) == 671_026_404_352
    sizes = {"num_layers": 27, "hidden_size": 2048, "num_heads": 16, "num_kv_heads": 16, "vocab_size": 102400}
    sizes |= {"intermediate_size": 10944, "moe_intermediate_size": 1408, "dense_layers": 1, "shared_experts": 2}
    lite = replace(deepseek, **sizes, num_experts=64, experts_per_token=6, q_rank=0)  # queries without a latent
    assert total_parameters(lite) == pytest.approx(15.7e9, rel=0.001), "deepseek-ai/DeepSeek-V2-Lite's card"
    with_mtp = replace(deepseek, mtp_layers=1)  # 11.5 billion of its own, by README_WEIGHTS.md there
    assert total_parameters(with_mtp) - total_parameters(deepseek) == pytest.approx(11.5e9, rel=0.01)
    assert model_flops_per_token(with_mtp, 4096) == pytest.approx(1276e12 / 4912, rel=0.005)
    assert model_flops_per_token(MODELS["GPT-OSS-120B"], 4096) == pytest.approx(934e12 / 28672, rel=0.005)
    whole = replace(MODELS["GPT-OSS-120B"], window=0, window_layers=0)
    assert model_flops_per_token(whole, 4096) > 1.04 * 934e12 / 28672
    for window in (4096, 8192):
        wide = replace(MODELS["GPT-OSS-120B"], window=window)
        assert model_flops_per_token(wide, 4096) == model_flops_per_token(whole, 4096)
