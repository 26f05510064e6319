"""Activations that one layer stores for its backward, in bytes per token of one rank.

The forms of Korthikanti et al. 2022 (arXiv 2205.05198, table 2), term by term, so that grouped-query attention, gated
MLPs, mixtures of experts, flash attention and each trainer's own behaviour have their exact form. With as many kv heads
as heads, an MLP of 4 h that is not gated, and dropout, the terms add up to the paper's 34 h + 5 a s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics.columns import element_bytes, equals, matrix_input_bytes, mentions, read
from sweep.physics.profiles import MemoryProfile


def layer_bytes_per_token(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Bytes that a layer stores per local token, by the column ``recompute``."""
    retained = whole_layer_bytes_per_token(columns, shape, profile)
    selective, full = (equals(columns, "recompute", kind) for kind in ("selective", "full"))
    if selective.any():
        retained = np.where(selective, _selective(columns, shape, profile), retained)
    if full.any():
        retained = np.where(full, split_hidden_bytes_per_token(columns, shape, profile), retained)
    return retained


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
    into_norms = 2 * shape.hidden_size * (element_bytes(columns) + profile.dropout)  # 4 h, and 2 h of dropout masks
    found = (
        into_norms / _sequence_split(columns, profile)
        + _outputs_of_norms(columns, shape, profile)
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
        return whole_layer_bytes_per_token(columns, shape, profile) - _dropped(columns, shape, profile)
    # Both row-split matrices' outputs are of the whole sequence before they are scattered.
    scattered = (read(columns, "tp") > 1) * (2.0 * profile.sequence_parallel)
    return _outputs_of_products(columns, shape, profile) + scattered * whole_hidden_bytes_per_token(columns, shape)


def _dropped(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """What Megatron's modules of ``recompute_modules`` store (TransformerConfig; empty: the attention core).

    Of routed experts' activations those of "moe_act", or with "moe" all of the layer's; "mlp" is of dense layers.
    """
    names = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act")
    core, norms, latent, mlp, moe, inner = (mentions(columns, "recompute_modules", name) for name in names)
    core = core + equals(columns, "recompute_modules", "")
    tp = read(columns, "tp")
    heads = (np.asarray(shape.kv_rank) > 0) * shape.num_heads / tp
    made = heads * (3 * shape.head_dim + 2 * shape.rope_head_dim)  # queries, keys and values; the latents are kept
    activated = matrix_input_bytes(columns) * shape.experts_per_token * shape.moe_intermediate_size / tp
    return (
        core * _scores(columns, shape, profile)
        + norms * _outputs_of_norms(columns, shape, profile)
        + latent * element_bytes(columns) * made
        + np.where(np.asarray(shape.num_experts) > 0, moe, mlp) * _mlp(columns, shape, profile)
        + inner * (1 - moe) * activated
    )


def _outputs_of_norms(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Both feed matrices: 4 h in half precision. A mixture's router does not compute in 8 bits and stores its input."""
    narrow = matrix_input_bytes(columns, rounded=profile.inputs_rounded)
    second = np.where(np.asarray(shape.num_experts) > 0, element_bytes(columns), narrow)
    split = 1.0 if profile.gathered_inputs_retained else _sequence_split(columns, profile)
    return shape.hidden_size * (narrow + second) / split


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
    narrow = matrix_input_bytes(columns, rounded=profile.inputs_rounded)
    per_width = element * inner + narrow
    dense = per_width * shape.intermediate_size / tp
    sent = (narrow + (profile.routed_copies - 1) * element) * shape.experts_per_token + profile.compiled * element
    sent = sent * shape.hidden_size / _sequence_split(columns, profile)
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
