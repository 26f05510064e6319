"""The ``models`` of a grid: names of the catalogue and shapes written inline, to one mapping of names to shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sweep.errors import nearest
from sweep.inputs.validation import check
from sweep.inputs.yaml_lines import Document, Path, Problem
from sweep.physics.catalogue import MODELS, catalogued
from sweep.physics.shapes import ModelShape

ReadConfig = Callable[[str], Mapping[str, Any] | None]
"""path of a config.json -> its mapping; None where it cannot be read"""


def read_models(document: Document, read_config: ReadConfig) -> list[Problem]:
    """Replace the document's ``models`` by shapes. Returns what is wrong with them.

    A shape may also be the mapping of a Hugging Face config.json, or the path of one.

    Valid: ``[1B, {mine: {num_layers: …}}]``, ``{1B: , small: tiny-1M, mine: {num_layers: …}}``, and one name.
    """
    if not isinstance(document.value, dict) or "models" not in document.value:
        return []
    value = document.value["models"] or []
    items = value if isinstance(value, list) else [value]
    shapes: dict[str, ModelShape] = {}
    problems = [] if items else [Problem(("models",), "no model is given", "such as models: [8B]")]
    for i, item in enumerate(items):
        path: Path = ("models", i) if isinstance(value, list) else ("models",)
        for name, shape in _pairs(item, path, problems):
            if name in shapes:
                problems.append(Problem(path, f"the model {name!r} is given twice"))
            read, wrong = _shape(name, shape, (*path, name), read_config)
            problems += wrong
            if read is not None:
                shapes[name] = read
            document.lines[("models", name)] = document.line((*path, name)) or 0
    # Names are sorted, so that the order of keys or of the list does not change the plan.
    document.value["models"] = {name: shapes[name] for name in sorted(shapes)}
    if not shapes and problems:
        document.value["models"] = {"1B": MODELS["1B"]}  # reported already: the rest of the grid is still checked
    return problems


def _pairs(item: Any, path: Path, problems: list[Problem]) -> list[tuple[str, Any]]:
    if isinstance(item, str | int | float) and not isinstance(item, bool):
        name = str(item) if str(item).endswith(".json") else catalogued(str(item)) or str(item)
        return [(name, name)]
    if isinstance(item, dict) and item:
        return list(item.items())
    problems.append(Problem(path, "expected a model's name, or name: shape"))
    return []


def _shape(name: str, value: Any, path: Path, read_config: ReadConfig) -> tuple[ModelShape | None, list[Problem]]:
    if isinstance(value, str) and value.endswith(".json") and value != name:
        file, value = value, read_config(value)
        if value is None:
            return None, [Problem(path, f"{file[:200]} is not a readable config.json")]
    if value is None or isinstance(value, str):
        return _known(value or name, path)
    if not isinstance(value, dict):
        return None, [Problem(path, "expected a shape: num_layers, hidden_size and so on")]
    if "model_type" in value or "num_hidden_layers" in value:  # a config.json
        shape, texts = shape_of_config(value)
        return shape, [Problem(path, text) for text in texts]
    sizes = ((key, size) for key, size in value.items() if type(size) is int)
    wrong = {key: Problem((*path, key), f"{size} is out of range") for key, size in sizes if not 0 <= size < 2**31}
    read, problems = check(ModelShape, {key: 1 if key in wrong else size for key, size in value.items()}, path)
    if wrong:  # what they make of the whole shape says nothing
        problems = [problem for problem in problems if problem.path != path or "missing" in problem.fact]
    return (None if wrong else read), [*wrong.values(), *problems]


def _known(name: str, path: Path) -> tuple[ModelShape | None, list[Problem]]:
    if (known := catalogued(name)) is not None:
        return MODELS[known], []
    remedy = f"{nearest(name, MODELS)}; or write its shape: {{mine: {{num_layers: …}}}}"
    if name.endswith(".json"):
        remedy = f"a model by its file has a name: {{mine: {name[:60]}}}"
    return None, [Problem(path, f"unknown model {name[:60]!r}", remedy)]


_EXPERTS = ("num_experts", "experts_per_token")
_SHARED = (*_EXPERTS, "moe_intermediate_size", "shared_experts", "dense_layers")
_LATENT = (*_SHARED, "num_kv_heads", "kv_rank", "q_rank", "rope_head_dim")
FAMILIES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "llama": ({}, ()),
    "mistral": ({}, ("num_kv_heads", "window")),
    "smollm3": ({"tied_embeddings": True}, ("num_kv_heads",)),
    "qwen2": ({"qkv_bias": True}, ("num_kv_heads",)),
    "qwen3": ({"qk_norm": True}, ("num_kv_heads", "head_dim")),
    "qwen3_moe": ({"qk_norm": True}, ("num_kv_heads", *_EXPERTS, "moe_intermediate_size")),
    "gemma": ({"tied_embeddings": True}, ("num_kv_heads", "head_dim")),
    "mixtral": ({}, ("num_kv_heads", *_EXPERTS)),
    "gpt_oss": (
        {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True, "window": 128},
        ("num_kv_heads", "head_dim", *_EXPERTS),
    ),
    "glm4_moe": ({}, ("num_kv_heads", "head_dim", *_SHARED)),
    "phi3": ({}, ()),
    "granite": ({}, ()),
    "seed_oss": ({"qkv_bias": True}, ("num_kv_heads", "head_dim")),
    "dots1": ({"qk_norm": True}, ("num_kv_heads", *_SHARED)),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), ({}, _LATENT)),
}
"""model_type -> (what its class has beyond its file, or by default; further fields that its file must state: its class
has a default that is not that of a shape)"""
_SIZES = {
    "num_layers": ("num_hidden_layers",),
    "hidden_size": ("hidden_size",),
    "num_heads": ("num_attention_heads",),
    "intermediate_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "num_kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "num_experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token"),
    "moe_intermediate_size": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "dense_layers": ("first_k_dense_replace",),
    "kv_rank": ("kv_lora_rank",),
    "q_rank": ("q_lora_rank",),
    "rope_head_dim": ("qk_rope_head_dim",),
    "window": ("sliding_window",),
}
"""field of a shape -> its names in a config.json; the first five are required"""
_OF_HYBRIDS = re.compile(r"(mamba|ssm|hybrid|linear_(attn|conv|key|num|value))_\w{1,40}")
_REQUIRED = tuple(_SIZES)[:5]
_MAY_BE_0 = ("shared_experts", "dense_layers")


def shape_of_config(config: Mapping[str, Any]) -> tuple[ModelShape | None, list[str]]:
    """(the shape, what is wrong with the config.json of a Hugging Face repository).

    The keys are those of transformers' configuration classes. Only families whose parameters the shape counts exactly,
    or as the catalogue says, are taken: of another one some part would be missing in silence.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        named = f" {family}" if isinstance(family, str) and re.fullmatch(r"[\w.-]{1,40}", family) else ""
        shape = "{num_layers: …, hidden_size: …, num_heads: …, intermediate_size: …, vocab_size: …}"
        kinds = config.get("layer_types")  # of a hybrid class some models have attention in every layer (Granite 4.0)
        attends = isinstance(kinds, list) and kinds and not re.search("mamba|linear", str(kinds))
        hybrid = next(filter(_OF_HYBRIDS.fullmatch, map(str, () if attends else config)), "")
        remedy = f"{hybrid}: no shape has Mamba or linear attention" if hybrid else f"write the shape instead: {shape}"
        return None, [f"model_type{named} is none of {', '.join(FAMILIES)}; {remedy}"]
    usual, required = FAMILIES[family]
    # Of so many layers one has a window; other classes ignore the key.
    every = {"mistral": 1, "phi3": 1, "gpt_oss": 2}.get(family)
    ignored: dict[str, None] = {} if every else {"sliding_window": None}
    latent = {"head_dim": config.get("v_head_dim")} if required is _LATENT else {}  # head_dim is the rotary part there
    sizes, wrong = _sizes({**config, **ignored, **latent}, (*_REQUIRED, *required))
    every_layer = all(config.get(key) in (None, 1) for key in ("decoder_sparse_step", "moe_layer_freq"))
    if not every_layer or config.get("mlp_only_layers"):
        wrong.append("decoder_sparse_step, moe_layer_freq or mlp_only_layers: a shape has experts in all later layers")
    if latent and ("head_dim" not in sizes or config.get("qk_nope_head_dim") != sizes["head_dim"]):
        wrong.append("qk_nope_head_dim and v_head_dim must be stated and equal: a shape has one width of both")
    fields = {**usual, **sizes}
    if config.get("tie_word_embeddings") is not None:
        fields["tied_embeddings"] = bool(config["tie_word_embeddings"])
    if config.get("attention_bias"):
        fields |= {"qkv_bias": True, "attention_output_bias": family not in ("glm4_moe", "seed_oss")}
    further = {"mlp_bias": "mlp_bias", "use_qk_norm": "qk_norm", "attention_out_bias": "attention_output_bias"}
    fields |= {field: True for key, field in further.items() if config.get(key)}
    if wrong:
        return None, wrong
    layers = -(-sizes["num_layers"] // every) if every else 0
    if layers and isinstance(kinds := config.get("layer_types"), list) and kinds:
        layers = kinds.count("sliding_attention")
    fields |= {"window_layers": layers} if layers and "window" in fields else {"window": 0}
    try:
        return ModelShape(**fields), []
    except ValueError as error:
        return None, [str(error)]


def _sizes(config: Mapping[str, Any], required: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """The sizes that the config states, by field; and what is wrong with them. A key that is null counts as stated."""
    sizes, wrong = {}, []
    for field, keys in _SIZES.items():
        key = next((key for key in keys if config.get(key) is not None), None)
        if key is None:
            stated = field not in _REQUIRED and any(key in config for key in keys)
            wrong += [f"{' or '.join(keys)} is missing"] * (field in required and not stated)
        elif type(config[key]) is not int or not (field not in _MAY_BE_0) <= config[key] < 2**31:
            wrong.append(f"{key} is not a positive whole number")
        else:
            sizes[field] = config[key]
    return sizes, wrong
