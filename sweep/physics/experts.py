"""Mixtures of experts on one rank: rows of each expert, traffic of routed tokens, their exchange, the host's work.

Numbers are of a mixture layer times ``share``, the part of the model's layers that are one: all layers count the same.
Tokens are taken as spread evenly over experts, which balancing losses approach and published benchmarks force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import communication, constants
from sweep.physics.columns import RECIPE, element_bytes, equals, expert_width, local_tokens, mentions, read
from sweep.physics.machine import Machine
from sweep.physics.shapes import moe_layers, shape_columns
from sweep.physics.trainers import Behaviour

Columns = Mapping[str, Any]
WHOLE = "full_iteration"
"""in ``cuda_graphs``: every kernel of a step is replayed"""
_BROADCAST = 1 / constants.BROADCAST_SHARE.median
CLAMP_BYTES = (16.0, 30.0)
"""per element of width: both halves clamped (8), joined (8); backward compared and chosen (8, 14), joined (8)"""
ROTARY_BYTES = (12 + 8 * _BROADCAST, 16 + 8 * _BROADCAST)
"""per element of queries and keys, beyond a fused kernel's 4: times cosine and sine (8, broadcast), half negated (2),
joined twice (8), added (6); backward times both, negated, joined, three gradients summed (14)"""
BIAS_BYTES = ((10 + 2 * _BROADCAST, 12 + 8 * _BROADCAST), (24 + 4 * _BROADCAST, 24 + 16 * _BROADCAST))
"""per element, forward and backward: the product written (2, broadcast), the sum (4 read, 2 written), joined (4); in
backward joined (4), the product's two gradients multiplied (8, broadcast) and summed (8). With DeepEP and HybridEP
probabilities are fp32: so are these, and there are casts (6, 12 with the part of the output)"""


def share(columns: Columns) -> Any:
    """The part of the model's layers that are mixtures: 0 without experts."""
    shape = shape_columns(columns)
    return np.asarray(moe_layers(shape), dtype=np.float64) / shape.num_layers


def local_experts(columns: Columns) -> Any:
    """Routed experts that a rank holds, or holds a part of."""
    return np.maximum(np.asarray(shape_columns(columns).num_experts, dtype=np.float64) / read(columns, "ep"), 1)


def routed_tokens(columns: Columns) -> Any:
    """Tokens times experts per token that a rank computes, in a micro-batch.

    The ranks of a tensor-parallel group have a part of the tokens each, and those that share an expert compute all of
    theirs: with an ``etp`` below tp fewer than a micro-batch's.
    """
    shape = shape_columns(columns)
    per_token = np.maximum(shape.experts_per_token, 1)
    return local_tokens(columns) * per_token * expert_width(columns) / read(columns, "tp")


def padded(rows: Any) -> Any:
    """Rows that are computed where experts get a random number of them: half a tile more on average."""
    return rows + 0.5 * np.sqrt(constants.TILE.median)


def routed_elements(columns: Columns) -> Any:
    """Elements of the routed tokens' activations on a rank, of width hidden_size."""
    return routed_tokens(columns) * read(columns, "hidden_size")


def copies(columns: Columns, places: Any) -> Any:
    """Of as many places (ranks, nodes), how many a token is sent to: those with at least one of its experts."""
    return places * (1 - (1 - 1 / places) ** shape_columns(columns).experts_per_token)


def exchange_s(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Seconds of sending tokens to their experts and back in one layer's forward: two exchanges, none hidden.

    DeepEP and HybridEP send a token once to each node, and from there once to each rank that has an expert of it; a
    plain all-to-all sends it once per expert, an all-gather to every rank. Ranks that share an expert gather its tokens
    and scatter their parts of its outputs.
    """
    shape, ep = shape_columns(columns), read(columns, "ep")
    nodes = np.maximum(np.ceil(ep / read(columns, "gpus_per_node")), 1)
    once, all_of_them = equals(columns, "dispatcher", "deepep", "hybridep"), equals(columns, "dispatcher", "allgather")
    per_token = np.where(all_of_them, ep, shape.experts_per_token)
    parts = read(columns, "tp") if behaviour.splits_routed_tokens else 1.0
    tokens = local_tokens(columns) / parts * element_bytes(columns) * read(columns, "hidden_size")
    to_ranks, to_nodes = (np.where(once, copies(columns, n), per_token) for n in (ep, nodes))
    found = 2.0 * communication.exchange_s(columns, tokens * to_ranks, tokens * to_nodes, ep, nodes, machine)
    if behaviour.splits_routed_tokens:
        sharing, size = expert_width(columns), routed_elements(columns) * element_bytes(columns)
        across = np.maximum(np.ceil(sharing / read(columns, "gpus_per_node")), 1)
        found = found + communication.collective_s(columns, 2.0 * size, sharing, across, machine, calls=2.0, axis="tp")
    return found * share(columns)


def tensor_share(columns: Columns, behaviour: Behaviour) -> Any:
    """The part of a layer's tensor-parallel communication that is left: a mixture that splits its tokens has none."""
    return 1 - 0.5 * share(columns) * behaviour.splits_routed_tokens


def host_operations(columns: Columns, behaviour: Behaviour) -> tuple[Any, Any]:
    """Further host operations of a layer for its mixture's router and exchanges, forward and backward."""
    forward, backward = behaviour.expert_operations
    return share(columns) * forward, share(columns) * backward


def launches(columns: Columns, machine: Machine, behaviour: Behaviour) -> tuple[Any, Any]:
    """Host operations of a layer's products where each expert's is a kernel of its own, forward and backward.

    NVIDIA/TransformerEngine v2.9, pytorch/module/grouped_linear.py and csrc (quantizer.cpp): of each of two matrices a
    product (in C++ in both passes), in backward two and a hook (NVIDIA/Megatron-LM, core/distributed); in 8 bits an
    object and a kernel that casts its input, and its output's gradient, after three that scale it by its largest value
    (fp8_tensorwise), and its weight's cast looked up. Biases: a product, a sum and a view, and backward.
    """
    each = share(columns) * local_experts(columns) * behaviour.kernel_per_expert
    product = constants.GROUPED_PRODUCT_S.median / machine.launch_s
    narrow = 1.0 * equals(columns, "dtype", "fp8", "fp4")
    cast = narrow * np.where(equals(columns, RECIPE, "fp8_tensorwise"), 10.0, 4.0)
    bias = np.asarray(shape_columns(columns).mlp_bias) * 1.0
    return each * (2 * product + cast + 2 * narrow + 3 * bias), each * (6 * product + 2 + cast + 5 * bias)


def eager_bytes(columns: Columns, behaviour: Behaviour) -> tuple[Any, Any]:
    """Bytes that one layer moves outside fused kernels, forward and backward (NVIDIA/Megatron-LM, core 0.15 to 0.19).

    Each expert's rows are padded and cut for 8 bits (not by HybridEP). Of gated experts with biases, which of published
    models GPT-OSS has: biases of outputs, t + b * p expert by expert, joined; clamped activations; positions that
    YaRN scales, the only ones where the whole iteration is a CUDA graph, which needs fused operations.
    """
    shape, mixed = shape_columns(columns), share(columns) * behaviour.kernel_per_expert
    eager = mixed * (1 - mentions(columns, "cuda_graphs", WHOLE))
    biased = np.asarray(shape.mlp_bias) * np.asarray(shape.gated_mlp)
    heads = shape.head_dim * (shape.num_heads + np.asarray(shape.num_kv_heads)) / read(columns, "tp")
    turned = biased * (mixed > 0) * local_tokens(columns) * heads
    padded = 8.0 * equals(columns, "dtype", "fp8", "fp4") * ~equals(columns, "dispatcher", "hybridep")
    once = equals(columns, "dispatcher", "deepep", "hybridep")
    outputs = [padded + biased * np.where(once, wide, narrow) for narrow, wide in zip(*BIAS_BYTES, strict=True)]
    forward, backward = (
        eager * (output * routed_elements(columns) + clamp * biased * inner_elements(columns)) + rotary * turned
        for output, clamp, rotary in zip(outputs, CLAMP_BYTES, ROTARY_BYTES, strict=True)
    )
    return forward, backward


def inner_elements(columns: Columns) -> Any:
    """Elements of the experts' activations on a rank, of an expert's width."""
    return routed_tokens(columns) * shape_columns(columns).moe_intermediate_size / expert_width(columns)


def small_kernels_s(columns: Columns, behaviour: Behaviour) -> tuple[Any, Any]:
    """Seconds of many short kernels, forward and backward: a layer's router, bookkeeping of tokens, scales of casts."""
    part = share(columns) * constants.SMALL_KERNEL_S.median
    apart = behaviour.kernel_per_expert * (1 - mentions(columns, "cuda_graphs", WHOLE))
    scaled = 4 * local_experts(columns) * equals(columns, RECIPE, "fp8_tensorwise") * apart
    forward, backward = behaviour.expert_operations
    return part * (forward + scaled), part * (backward + scaled)
