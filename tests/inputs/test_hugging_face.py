"""Models by the config.json of their Hugging Face repository: the shapes of the catalogue, and clear mistakes."""

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.inputs.models import shape_of_config
from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import total_parameters
from tests.support.command_line import Command
from tests.support.refusals import mistakes_of

NO_EXPERTS = "num_experts or num_local_experts or n_routed_experts is missing"
GRID = "name: g\nnodes: [1]\nsequence_length: 4096\nglobal_batch: 1Mi\nmodels: {}\n"


def config(family: str, layers: int, hidden: int, heads: int, kv: int, width: int, vocab: int, **others: Any) -> Any:
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    sizes = dict(zip(names, (layers, hidden, heads, kv), strict=True))
    rest = {"intermediate_size": width, "vocab_size": vocab, "torch_dtype": "bfloat16", "rope_theta": 1e6}
    return {"model_type": family, **sizes, **rest, **others}


CONFIGS = {
    "Llama-3-8B": config("llama", 32, 4096, 32, 8, 14336, 128256, tie_word_embeddings=False, attention_bias=False),
    "SmolLM3-3B": config("smollm3", 36, 2048, 16, 4, 11008, 128256),
    "Qwen3-8B": config("qwen3", 36, 4096, 32, 8, 12288, 151936, head_dim=128, tie_word_embeddings=False),
    "Qwen3-30B-A3B": config(
        "qwen3_moe", 48, 2048, 32, 4, 6144, 151936,
        head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, tie_word_embeddings=False,
    ),
    "Mistral-7B": config("mistral", 32, 4096, 32, 8, 14336, 32768, sliding_window=None),
    "Gemma-7B": config("gemma", 28, 3072, 16, 16, 24576, 256000, head_dim=256),
    "Mixtral-8x7B": config("mixtral", 32, 4096, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
    "GPT-OSS-20B": config(
        "gpt_oss", 24, 2880, 64, 8, 2880, 201088,
        head_dim=64, num_local_experts=32, experts_per_token=4, attention_bias=True, tie_word_embeddings=False,
    ),
    "DeepSeek-V3": config(
        "deepseek_v3", 61, 7168, 128, 128, 18432, 129280,  # head_dim as transformers writes it: the rotary part
        n_routed_experts=256, num_experts_per_tok=8, n_shared_experts=1, moe_intermediate_size=2048, moe_layer_freq=1,
        first_k_dense_replace=3, kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128, head_dim=64, num_nextn_predict_layers=1, tie_word_embeddings=False,
    ),
}  # fmt: skip


def test_mixtures_have_the_published_number_of_parameters() -> None:
    """config.json of DeepSeek-V2-Lite and zai-org's GLM-4.5-Air (106 billion by its card, without the last layer)."""
    lite = CONFIGS["DeepSeek-V3"] | config("deepseek_v2", 27, 2048, 16, 16, 10944, 102400, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1,
        q_lora_rank=None,
    )  # fmt: skip
    air = config("glm4_moe", 46, 4096, 96, 8, 10944, 151552, head_dim=128, n_routed_experts=128, n_shared_experts=1,
        num_experts_per_tok=8, moe_intermediate_size=1408, first_k_dense_replace=1, attention_bias=True,
    )  # fmt: skip
    shapes = [shape for shape, _ in map(shape_of_config, (lite, air)) if shape is not None]
    assert [total_parameters(shape) for shape in shapes] == [15_706_484_224, 106_852_245_504]
    assert [shape.attention_output_bias for shape in shapes] == [False, False]
    normed, _ = shape_of_config(air | {"use_qk_norm": True, "first_k_dense_replace": 0})
    assert normed is not None
    assert (normed.qk_norm, normed.dense_layers) == (True, 0)
    for differing in ({"v_head_dim": 192}, *({"v_head_dim": None, "qk_nope_head_dim": one} for one in (None, 0, 128))):
        assert "must be stated and equal" in shape_of_config(lite | differing)[1][0]


DOTS = config(
    "dots1", 62, 4096, 32, 32, 10944, 152064, n_routed_experts=128, n_shared_experts=2, num_experts_per_tok=6,
    moe_intermediate_size=1408, first_k_dense_replace=1, sliding_window=4096,
)  # fmt: skip
SEED = config("seed_oss", 64, 5120, 80, 8, 27648, 155136, head_dim=128, attention_bias=True, attention_out_bias=False)


@pytest.mark.parametrize(
    ("given", "billions"),
    [
        (config("phi3", 40, 5120, 40, 10, 17920, 100352, sliding_window=None), 14.7),  # microsoft/phi-4
        (config("granite", 40, 4096, 32, 8, 12800, 49155, tie_word_embeddings=True), 8.17),  # granite-3.0-8b-base
        (SEED, 36.15),  # ByteDance-Seed/Seed-OSS-36B-Base
        (DOTS, 142.8),  # rednote-hilab/dots.llm1.base
    ],
)
def test_further_families_have_the_number_of_parameters_of_their_cards(given: Any, billions: float) -> None:
    shape, wrong = shape_of_config(given)
    assert shape is not None, wrong
    assert total_parameters(shape) / 1e9 == pytest.approx(billions, rel=4e-3)
    assert (shape.qkv_bias, shape.attention_output_bias) == (given is SEED, False)
    assert (shape.qk_norm, shape.window) == (given is DOTS, 0)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_has_the_shape_of_the_catalogue(name: str) -> None:
    assert shape_of_config(CONFIGS[name]) == (MODELS[name], [])


def test_a_file_may_say_which_of_its_layers_have_a_window() -> None:
    layers = ["sliding_attention"] * 3 + ["full_attention"] * 21
    shape, _ = shape_of_config(CONFIGS["GPT-OSS-20B"] | {"layer_types": layers, "sliding_window": 64})
    assert shape is not None
    assert (shape.window, shape.window_layers) == (64, 3)
    ministral = config("mistral", 36, 4096, 32, 8, 12288, 131072, head_dim=128, sliding_window=32768)
    shape, _ = shape_of_config(ministral)
    assert shape is not None
    assert (shape.window, shape.window_layers) == (32768, 36)
    assert shape_of_config(ministral | {"layer_types": 5}) == (shape, []), "no list"
    for ignored in (4096, 0, False):
        shape, wrong = shape_of_config(CONFIGS["Gemma-7B"] | {"sliding_window": ignored})
        assert (shape and shape.window, wrong) == (0, []), "its class knows no window"


def test_a_grid_takes_one_as_a_path_and_inline_by_a_name(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["Qwen3-8B"]))
    for value in (str(path), json.dumps(CONFIGS["Qwen3-8B"])):
        grid = parse_grid(GRID.replace("{}", f"{{mine: {value}}}"), "grid.yaml")
        assert grid.models == {"mine": MODELS["Qwen3-8B"]}
        assert parse_grid(grid.to_yaml(), "again.yaml") == grid, "the shape is stored"
    with pytest.raises(SweepError, match=r"a model by its file has a name: \{mine: theirs/config.json\}"):
        parse_grid(GRID.replace("{}", "[theirs/config.json]"), "grid.yaml")


def test_a_hybrid_model_has_no_shape_that_could_be_written_instead() -> None:
    """Of Qwen3-Next, Nemotron-H, Falcon-H1 and MiniMax-M1 a key each; not of what has a name like theirs, nor of
    granite-4.0-micro (generative-computing/granite-switch#124): 40 layers of attention in a class of hybrids.
    """
    keys = ("linear_num_value_heads", "hybrid_override_pattern", "mamba_d_ssm", "linear_attn_alpha_factor")
    for key in (*keys, "linear_bias", "hybrid", "x_mamba_d_ssm", "mamba_\x1b[2J"):
        _, (wrong,) = shape_of_config(config("qwen3_next", 48, 2048, 16, 2, 5120, 151936) | {key: 32})
        hybrid = wrong.endswith(f"; {key}: no shape has Mamba or linear attention")
        assert hybrid == (key in keys)
        assert ("write the shape instead" in wrong) != hybrid
    for kinds, hybrid in ((["attention"] * 40, False), (["mamba", "attention"] * 20, True), ([], True), (5, True)):
        granite = config("granitemoehybrid", 40, 2560, 40, 8, 8192, 100352) | {"mamba_n_heads": 128}
        _, (wrong,) = shape_of_config(granite | {"layer_types": kinds})
        assert wrong.endswith("mamba_n_heads: no shape has Mamba or linear attention") == hybrid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "is not a readable config.json"),
        ("[1]", "is not a readable config.json"),
        (None, "is not a readable config.json"),
        (json.dumps({"model_type": "bert", "num_hidden_layers": 2}), "model_type bert is none of llama"),
        (json.dumps({"model_type": "llama", "hidden_size": "big"}), "hidden_size is not a positive whole number"),
        (json.dumps({"model_type": "llama", "hidden_size": 64}), "num_hidden_layers is missing"),
    ],
)
def test_what_is_wrong_names_the_model_and_quotes_no_file(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    for models, where in ((f"{{mine: {path}}}", "models.mine"), (f"[1B, {{mine: {path}}}]", "models[1].mine")):
        found = mistakes_of(parse_grid, GRID.replace("{}", models), "grid.yaml")
        mistake = next(m for m in found if expected in m.fact)
        assert (mistake.line, str(mistake.path)) == (5, where)


def test_memory_takes_one_and_names_the_file_of_a_mistake(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["Llama-3-8B"]))
    found = [command.json("memory", model, "--dp", 8, "--zero", 1) for model in (path, "Llama-3-8B")]
    assert found[0]["stages"] == found[1]["stages"]
    path.write_text(json.dumps(CONFIGS["Llama-3-8B"] | {"model_type": "gemma2"}))
    err = command.refused("memory", path)
    assert err.startswith(f"error: {path}: model_type gemma2 is none of llama, ")


def test_sizes_that_fit_no_model_are_refused_with_the_reason() -> None:
    found, wrong = shape_of_config(config("llama", 2, 64, 6, 4, 128, 1000, head_dim=8))
    assert found is None
    assert wrong == ["num_heads 6 is not a multiple of num_kv_heads 4"]


@pytest.mark.parametrize(("name", "lost", "named"), [
    ("Qwen3-30B-A3B", "num_experts", NO_EXPERTS),  # it was taken for a dense model
    ("Qwen3-30B-A3B", "moe_intermediate_size", "moe_intermediate_size is missing"),
    ("Mixtral-8x7B", "num_local_experts", NO_EXPERTS),
    ("Mixtral-8x7B", "num_key_value_heads", "num_key_value_heads is missing"),  # transformers' default is 8
    ("Gemma-7B", "head_dim", "head_dim is missing"),  # and 256
    ("Mistral-7B", "sliding_window", "sliding_window is missing"),  # and 4,096
])  # fmt: skip
def test_what_transformers_would_add_by_default_must_be_stated(name: str, lost: str, named: str) -> None:
    found, wrong = shape_of_config({key: value for key, value in CONFIGS[name].items() if key != lost})
    assert (found, named in wrong) == (None, True), wrong


def test_without_the_key_a_llama_has_as_many_key_value_heads_as_heads() -> None:
    stated = config("llama", 2, 64, 4, 4, 128, 1000)
    assert shape_of_config({k: v for k, v in stated.items() if k != "num_key_value_heads"}) == shape_of_config(stated)
    gpt_oss = {k: v for k, v in CONFIGS["GPT-OSS-20B"].items() if k != "attention_bias"}
    assert shape_of_config(gpt_oss) == (MODELS["GPT-OSS-20B"], []), "nor need it state the biases of its class"
    null = config("mistral", 2, 64, 4, 4, 128, 1000, num_key_value_heads=None, sliding_window=None)
    assert shape_of_config(null) == shape_of_config(stated), "null is as many, too"


@pytest.mark.parametrize("more", [{"decoder_sparse_step": 2}, {"mlp_only_layers": [0, 1]}, {"moe_layer_freq": 2}])
def test_experts_in_some_layers_only_are_no_shape(more: dict[str, Any]) -> None:
    found, wrong = shape_of_config(CONFIGS["Qwen3-30B-A3B"] | more)
    assert (found, len(wrong), "a shape has experts in all later layers" in wrong[0]) == (None, 1, True)
    usual = CONFIGS["Qwen3-30B-A3B"] | {"decoder_sparse_step": 1, "mlp_only_layers": []}
    assert shape_of_config(usual) == (MODELS["Qwen3-30B-A3B"], [])
