"""Weights, gradients, master copies and optimizer states of one rank, under ZeRO 0 to 3.

Source: Rajbhandari et al. 2020 (arXiv 1910.02054) sec. 5; Megatron-LM's distributed optimizer is stage 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import pipeline, shapes
from sweep.physics.columns import element_bytes, expert_split, read
from sweep.physics.profiles import OPTIMIZER_STATE_BYTES, MemoryProfile


def stage_parameters(columns: Mapping[str, Any], shape: Any, stage: str, profile: MemoryProfile) -> tuple[Any, Any]:
    """(dense, routed expert) parameters of a rank's part of the model, before ZeRO shards them.

    Matrices are split over tp; norms are whole on every rank, which is less than a thousandth. Routed experts are
    split over ep and tp (or the column ``etp`` instead). The first stage of a mixture is assumed to have only mixture
    layers: it holds no less than any other.
    """
    tp = read(columns, "tp")
    further = shape.mtp_layers * pipeline.has_output(columns, stage)
    layers = pipeline.layers(columns, shape, stage, profile.placement) + further
    routed = _routed_per_layer(shape)
    dense = shapes.layer_parameters(shape, moe=np.asarray(shape.num_experts) > 0) - routed
    embedding = shapes.input_embedding_parameters(shape) + shape.learned_positions * shape.hidden_size
    inputs = embedding * pipeline.has_embedding(columns, stage)
    outputs = shapes.output_embedding_parameters(shape) * pipeline.has_output(columns, stage)
    apart = pipeline.has_output(columns, stage) & ~pipeline.has_embedding(columns, stage)  # a tied embedding's copy
    outputs = outputs + shapes.input_embedding_parameters(shape) * shape.tied_embeddings * apart
    outputs = outputs + further * shapes.mtp_further_parameters(shape)
    return (layers * dense + inputs + outputs) / tp, layers * routed / expert_split(columns)


def _routed_per_layer(shape: Any) -> Any:
    per_expert = shapes.mlp_matrix_parameters(shape, shape.moe_intermediate_size)
    return np.asarray(shape.num_experts, dtype=np.float64) * per_expert


def shards(columns: Mapping[str, Any]) -> tuple[Any, Any]:
    """(dense, expert): over how many ranks ZeRO shards a parameter. Experts have as many fewer copies as ep takes."""
    copies = read(columns, "dp") * read(columns, "cp")
    experts = copies * read(columns, "tp") / expert_split(columns)
    return copies, np.maximum(experts, 1)


def state_bytes(columns: Mapping[str, Any], shape: Any, stage: str, profile: MemoryProfile) -> dict[str, Any]:
    """Bytes of a rank by kind: weights, gradients, master_weights, optimizer_states, gradient_buckets."""
    held = list(zip(stage_parameters(columns, shape, stage, profile), shards(columns), strict=True))

    def total(per_parameter: Any, sharded: Any) -> Any:
        return sum(per_parameter * count / np.where(sharded, ways, 1.0) for count, ways in held)

    zero, single = read(columns, "zero"), element_bytes(columns) == 4
    weights = element_bytes(columns) * np.where((zero == 3) & profile.fsdp, 0.0, 1.0)
    gradients = np.where(single, 4.0, profile.gradient_bytes) * (zero <= profile.gradients_held_until)
    master = np.where(single & (not profile.fsdp), 0.0, profile.master_bytes)
    if profile.plain_alone:
        alone = (shards(columns)[0] * read(columns, "tp") == 1) & (element_bytes(columns) == profile.master_bytes)
        master = np.where(alone, 0.0, master)
    buckets = np.where((shards(columns)[0] > 1) & (zero < 2), profile.bucket_bytes, 0.0)
    return {
        "weights": total(weights, zero == 3),
        "gradients": total(gradients, _gradients_sharded(columns, profile)),
        "master_weights": total(master, zero >= 1),
        "optimizer_states": total(OPTIMIZER_STATE_BYTES[profile.optimizer], zero >= 1),
        "gradient_buckets": total(buckets, False),
    }


def _gradients_sharded(columns: Mapping[str, Any], profile: MemoryProfile) -> Any:
    zero, pipelined = read(columns, "zero"), read(columns, "pp") > 1
    plain = zero > profile.gradients_whole_until
    at_once = (zero >= 1) & (read(columns, "grad_accum") == 1)
    return ((plain | at_once) & ~pipelined) if profile.fsdp else plain


def gathered_bytes(columns: Mapping[str, Any], shape: Any, stage: str, profile: MemoryProfile) -> Any:
    """Weights and gradients of the layers that are whole at once where ZeRO shards them: stage 3, gradients in 2.

    Embedding and output projection are gathered whole too; the largest of them and of a layer counts. If they stay
    whole while layers are freed (``profile.whole_ends``), only they count: layers are ``passing_layer_bytes``.
    """
    zero, ends = read(columns, "zero"), pipeline.has_embedding(columns, stage) | pipeline.has_output(columns, stage)
    if profile.whole_ends:
        held = shapes.input_embedding_parameters(shape) * ends / read(columns, "tp")
        # and a gradient of the micro-batch before, on the way to its owners in fp32
        sent = 4.0 * ((read(columns, "grad_accum") > 1) & _gradients_sharded(columns, profile))
        return held * (element_bytes(columns) * (zero == 3) + sent)
    layer = _whole_layer(columns, shape)
    largest = np.maximum(layer, shapes.input_embedding_parameters(shape) / read(columns, "tp") * ends)
    weights = element_bytes(columns) * ((profile.gathered_layers - 1) * layer + largest)
    gradients = profile.gathered_gradient_bytes * largest * _gradients_sharded(columns, profile)
    gradients = np.where(zero > profile.gradients_held_until, profile.gathered_gradient_bytes * largest, gradients)
    return np.where(zero == 3, weights, 0.0) + gradients


def passing_layer_bytes(columns: Mapping[str, Any], shape: Any, profile: MemoryProfile) -> Any:
    """Whole weights and gradients of layers while their backward runs, in addition to ends that stay whole."""
    if not profile.whole_ends:
        return np.zeros(())
    per_weight = profile.gathered_layers * element_bytes(columns) * (read(columns, "zero") == 3)
    per_gradient = profile.gathered_gradient_bytes * _gradients_sharded(columns, profile)
    return (per_weight + per_gradient) * _whole_layer(columns, shape)


def _whole_layer(columns: Mapping[str, Any], shape: Any) -> Any:
    """Parameters of a layer on a rank, its routed experts included, before ZeRO shards them."""
    routed = _routed_per_layer(shape)
    dense = shapes.layer_parameters(shape, moe=np.asarray(shape.num_experts) > 0) - routed
    return dense / read(columns, "tp") + routed / expert_split(columns)
