"""Activations that one layer stores for its backward, in bytes per token of one rank.

The forms of Korthikanti et al. 2022 (arXiv 2205.05198, table 2), term by term, so that grouped-query attention, gated
MLPs, mixtures of experts, flash attention and each trainer's own behaviour have their exact form. With as many kv heads
as heads, an MLP of 4 h that is not gated, and dropout, the terms add up to the paper's 34 h + 5 a s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics.columns import element_bytes, equals, matrix_input_bytes, read, words_in
from sweep.physics.profiles import MemoryProfile


def layer_bytes_per_token(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Bytes that a layer stores per local token, by the column ``recompute``."""
    retained, selective, full = whole_layer_bytes_per_token(columns, shape, profile), *_recomputing(columns)
    if selective.any():
        retained = np.where(selective, _selective(columns, shape, profile), retained)
    if full.any():
        retained = np.where(full, split_hidden_bytes_per_token(columns, shape, profile), retained)
    return retained


def recomputed_bytes_per_token(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Bytes that one layer's recomputation restores in backward; 0 without recomputation."""
    if not any(kind.any() for kind in _recomputing(columns)):
        return np.zeros(())
    return whole_layer_bytes_per_token(columns, shape, profile) - layer_bytes_per_token(columns, shape, profile)


def _recomputing(columns: Mapping[str, Any]) -> tuple[Any, Any]:
    """Where recomputation is selective, and where full."""
    return equals(columns, "recompute", "selective"), equals(columns, "recompute", "full")


def backward_bytes_per_token(columns: Mapping[str, Any], shape: Any) -> Any:
    """Gradients of activations in one layer's backward: of the residual path and of the widest matrix's output."""
    width = np.maximum(_mlp_width(shape) * (1 + shape.gated_mlp), shape.head_dim * shape.num_heads * 3)
    return element_bytes(columns) * (shape.hidden_size + width / read(columns, "tp"))


def whole_hidden_bytes_per_token(columns: Mapping[str, Any], shape: Any) -> Any:
    """One activation of the residual path, not split over tp."""
    return element_bytes(columns) * np.asarray(shape.hidden_size, dtype=np.float64)


def split_hidden_bytes_per_token(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """One activation of the residual path as the trainer stores it between layers."""
    return whole_hidden_bytes_per_token(columns, shape) / _sequence_split(columns, profile)


def whole_layer_bytes_per_token(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Bytes that a layer stores per local token where it recomputes nothing."""
    found = (
        _norms_and_residual(columns, shape, profile)
        + attention_bytes_per_token(columns, shape, profile)
        + _scores(columns, shape, profile)
        + _mlp(columns, shape, profile)
    )
    if not profile.compiled:
        return found
    # A compiler makes the 8-bit inputs of matrices again: measured on an H200 with two of torchao's recipes.
    return np.where(equals(columns, "dtype", "fp8"), _outputs_of_products(columns, shape, profile), found)


def _selective(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    if profile.selective == "attention":
        modules = read(columns, "recompute_modules")
        found: Any = 0.0
        for text in words_in(modules):
            found = np.where(modules == text, _without(text, columns, shape, profile), found)
        return found
    # Both row-split matrices' outputs are of the whole sequence before they are scattered.
    scattered = (read(columns, "tp") > 1) * (2.0 * profile.sequence_parallel)
    return _outputs_of_products(columns, shape, profile) + scattered * whole_hidden_bytes_per_token(columns, shape)


def _without(modules: str, columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """All but what Megatron's modules of ``recompute_modules`` store (TransformerConfig; empty: the attention core)."""
    named = set((modules or "core_attn").split(","))
    dropped = _scores(columns, shape, profile) * ("core_attn" in named)
    if "layernorm" in named:
        outputs_split = 1.0 if profile.gathered_inputs_retained else _sequence_split(columns, profile)
        dropped = dropped + shape.hidden_size * 2 * matrix_input_bytes(columns) / outputs_split
    if named & {"mlp", "moe"}:
        dropped = dropped + _mlp(columns, shape, profile)
    elif "moe_act" in named:
        moe = shape.experts_per_token + shape.shared_experts
        width = moe * shape.moe_intermediate_size / read(columns, "tp")
        dropped = dropped + matrix_input_bytes(columns) * width
    return whole_layer_bytes_per_token(columns, shape, profile) - dropped


def _norms_and_residual(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Inputs and outputs of both norms: 8 h in half precision, and 2 h of dropout masks. The outputs feed matrices."""
    element, hidden = element_bytes(columns), shape.hidden_size
    split = _sequence_split(columns, profile)
    outputs_split = 1.0 if profile.gathered_inputs_retained else split
    norms = hidden * (
        2 * element / split + 2 * matrix_input_bytes(columns, rounded=profile.inputs_rounded) / outputs_split
    )
    return norms + 2 * hidden * profile.dropout / split


def attention_bytes_per_token(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Queries and output, keys and values, and the softmax statistics of flash attention.

    Of latent attention also the latents, before and after their norms; its queries and keys are wider than its values.
    Normed queries and keys are stored before their norm too, with its statistics.
    """
    element = element_bytes(columns)
    heads = shape.num_heads / read(columns, "tp")
    latent = np.asarray(shape.kv_rank) > 0
    kv_heads = np.where(latent, heads, np.maximum(shape.num_kv_heads / read(columns, "tp"), 1))
    if profile.whole_kv_in_cp:
        kv_heads = kv_heads * read(columns, "cp")
    statistics = 4 * heads * profile.flash_attention
    latents = 2 * shape.q_rank + 2 * shape.kv_rank + shape.rope_head_dim
    normed = (element * shape.head_dim + 4) * (heads + kv_heads) * shape.qk_norm
    wide = 2 * shape.head_dim + shape.rope_head_dim
    return element * (wide * (heads + kv_heads) + latents) + statistics + normed


def _scores(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Probabilities over the whole sequence, and with dropout their mask and their dropped-out copy: 5 a s."""
    if profile.flash_attention:
        return 0.0
    per_pair = element_bytes(columns) * (1 + profile.dropout) + profile.dropout
    return per_pair * shape.num_heads / read(columns, "tp") * read(columns, "sequence_length")


def _mlp(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Outputs of the first matrices and the input of the last one; gated, not fused, also the activation's own output.

    Experts store the same for every token sent to them, its copies before and after, and the router's scores; a
    compiled layer the router's input too (saved tensors of torch 2.13's partitioner).
    """
    element, tp = element_bytes(columns), read(columns, "tp")
    inner = 1 + shape.gated_mlp * (1 if profile.fused_activation else 2)
    per_width = element * inner + matrix_input_bytes(columns, rounded=profile.inputs_rounded)
    dense = per_width * shape.intermediate_size / tp
    sent = profile.routed_copies * shape.experts_per_token + profile.compiled
    sent = sent * element * shape.hidden_size / _sequence_split(columns, profile)
    experts = shape.experts_per_token + shape.shared_experts
    mixture = per_width * experts * shape.moe_intermediate_size / tp + sent + 8 * shape.num_experts
    return np.where(np.asarray(shape.num_experts) > 0, mixture, dense)


def _outputs_of_products(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """What "cheap" selective recomputation stores: a layer's input, outputs of matrices, attention and collectives.

    A compiler leaves out the output of the layer's last matrix, which no gradient needs.
    """
    element, tp = element_bytes(columns), read(columns, "tp")
    split = _sequence_split(columns, profile)
    matrices = (1 + shape.gated_mlp) * _mlp_width(shape) / tp
    hidden = shape.hidden_size * ((2 if profile.compiled else 3) / split + np.where(tp > 1, 2.0, 0.0))
    return attention_bytes_per_token(columns, shape, profile) + element * (matrices + hidden)


def _mlp_width(shape: Any) -> Any:
    experts = shape.experts_per_token + shape.shared_experts
    return np.where(np.asarray(shape.num_experts) > 0, experts * shape.moe_intermediate_size, shape.intermediate_size)


def _sequence_split(columns: Mapping[str, Any], profile: MemoryProfile) -> Any:
    return read(columns, "tp") if profile.sequence_parallel else np.ones_like(read(columns, "tp"))
