"""A model's shape from the config.json of its Hugging Face repository. Pure.

The keys are those of transformers' configuration classes. Only families whose parameters the shape counts exactly, or
as the catalogue says, are taken: of another one some part would be missing in silence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from sweep.physics.shapes import ModelShape

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "smollm3": {"tied_embeddings": True},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "qwen3_moe": {"qk_norm": True},
    "gemma": {"tied_embeddings": True},
    "mixtral": {},
    "gpt_oss": {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True},
}
"""model_type -> what its class has beyond its file, or by default"""
_SIZES = {
    "num_layers": ("num_hidden_layers",),
    "hidden_size": ("hidden_size",),
    "num_heads": ("num_attention_heads",),
    "intermediate_size": ("intermediate_size",),
    "vocab_size": ("vocab_size",),
    "num_kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "num_experts": ("num_experts", "num_local_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token"),
    "moe_intermediate_size": ("moe_intermediate_size",),
}
"""field of a shape -> its names in a config.json; the first five are required"""
_REQUIRED = tuple(_SIZES)[:5]
_EXPERTS = ("num_experts", "experts_per_token")
_REQUIRED_OF: dict[str, tuple[str, ...]] = {
    "mistral": ("num_kv_heads",),
    "smollm3": ("num_kv_heads",),
    "qwen2": ("num_kv_heads",),
    "qwen3": ("num_kv_heads", "head_dim"),
    "qwen3_moe": ("num_kv_heads", *_EXPERTS, "moe_intermediate_size"),
    "gemma": ("num_kv_heads", "head_dim"),
    "mixtral": ("num_kv_heads", *_EXPERTS),
    "gpt_oss": ("num_kv_heads", "head_dim", *_EXPERTS),
}
"""model_type -> further fields that its file must state: its class has a default that is not that of a shape"""


def shape_of_config(config: Mapping[str, Any]) -> tuple[ModelShape | None, list[str]]:
    """(the shape, what is wrong with the config)."""
    family = config.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        named = f" {family}" if isinstance(family, str) and re.fullmatch(r"[\w.-]{1,40}", family) else ""
        shape = "{num_layers: …, hidden_size: …, num_heads: …, intermediate_size: …, vocab_size: …}"
        return None, [f"model_type{named} is none of {', '.join(FAMILIES)}; write the shape instead: {shape}"]
    sizes, wrong = _sizes(config, (*_REQUIRED, *_REQUIRED_OF.get(family, ())))
    if config.get("decoder_sparse_step") not in (None, 1) or config.get("mlp_only_layers"):
        wrong.append(
            "decoder_sparse_step or mlp_only_layers: only some of the layers have experts, a shape has no such"
        )
    fields = {**FAMILIES[family], **sizes}
    if config.get("tie_word_embeddings") is not None:
        fields["tied_embeddings"] = bool(config["tie_word_embeddings"])
    if config.get("attention_bias"):
        fields |= {"qkv_bias": True, "attention_output_bias": True}
    if config.get("mlp_bias"):
        fields["mlp_bias"] = True
    if family == "gpt_oss":
        kinds = config.get("layer_types") or ()  # of the class, where the file has none: every second layer
        windows = sum(kind == "sliding_attention" for kind in kinds) if kinds else (sizes.get("num_layers", 0) + 1) // 2
        fields |= {"window": config.get("sliding_window") or 128, "window_layers": windows}
    if wrong:
        return None, wrong
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
        elif type(config[key]) is not int or not 0 < config[key] < 2**31:
            wrong.append(f"{key} is not a positive whole number")
        else:
            sizes[field] = config[key]
    return sizes, wrong
