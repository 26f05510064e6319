"""Mixtures of experts on one rank: rows of each expert, traffic of routed tokens, their exchange, the host's work.

Numbers are of a mixture layer times ``share``, the part of the model's layers that are one: all layers count the same.
Tokens are taken as spread evenly over experts, which balancing losses approach and published benchmarks force.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import communication, constants
from sweep.physics.columns import element_bytes, equals, expert_width, local_tokens, mentions, read
from sweep.physics.machine import Machine
from sweep.physics.shapes import moe_layers, shape_columns
from sweep.physics.trainers import Behaviour

Columns = Mapping[str, Any]
WHOLE = "full_iteration"
"""in ``cuda_graphs``: every kernel of a step is replayed"""
_BROADCAST = 1 / constants.BROADCAST_SHARE.median
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


def rows_per_expert(columns: Columns) -> Any:
    """Rows of an expert's matrix products."""
    return routed_tokens(columns) / local_experts(columns)


def padded(rows: Any) -> Any:
    """Rows that are computed where experts get a random number of them: half a tile more on average."""
    return rows + 0.5 * np.sqrt(constants.TILE.median)


def routed_elements(columns: Columns) -> Any:
    """Elements of the routed tokens' activations on a rank, of width hidden_size."""
    return routed_tokens(columns) * read(columns, "hidden_size")


def copies(columns: Columns, places: Any) -> Any:
    """Of as many places (ranks, nodes), how many a token is sent to: those with at least one of its experts."""
    per_token = np.maximum(shape_columns(columns).experts_per_token, 1)
    return places * (1 - (1 - 1 / np.maximum(places, 1)) ** per_token)


def exchange_s(columns: Columns, machine: Machine, behaviour: Behaviour) -> Any:
    """Seconds of sending tokens to their experts and back in one layer's forward: two exchanges, none hidden.

    DeepEP and HybridEP send a token once to each node, and from there once to each rank that has an expert of it; a
    plain all-to-all sends it once per expert, an all-gather to every rank. Ranks that share an expert gather its tokens
    and scatter their parts of its outputs.
    """
    shape, ep = shape_columns(columns), read(columns, "ep")
    nodes = np.maximum(np.ceil(ep / read(columns, "gpus_per_node")), 1)
    once, all_of_them = equals(columns, "dispatcher", "deepep", "hybridep"), equals(columns, "dispatcher", "allgather")
    per_token = np.where(all_of_them, ep, np.maximum(shape.experts_per_token, 1))
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
    product, and in backward two; in 8 bits also an object and a kernel that casts its input, and its output's gradient,
    before Blackwell after three that scale it. Biases, see ``bias_bytes``: a product, a sum and a view, and backward.
    """
    each = share(columns) * local_experts(columns) * behaviour.kernel_per_expert
    cast = equals(columns, "dtype", "fp8", "fp4") * (4.0 if machine.architecture == "blackwell" else 10.0)
    bias = np.asarray(shape_columns(columns).mlp_bias) * 1.0
    return each * (2 + cast + 3 * bias), each * (4 + cast + 5 * bias)


def bias_bytes(columns: Columns, behaviour: Behaviour) -> tuple[Any, Any]:
    """Bytes that the biases of experts' outputs move in one layer, forward and backward.

    NVIDIA/Megatron-LM, TEGroupedMLP._apply_bias (core 0.15 to 0.19): t + b * p expert by expert, joined. Not where the
    whole iteration is a CUDA graph, which needs Transformer Engine's fused operations.
    """
    bias = np.asarray(shape_columns(columns).mlp_bias) * behaviour.kernel_per_expert
    elements = share(columns) * routed_elements(columns) * bias * (1 - mentions(columns, "cuda_graphs", WHOLE))
    once = equals(columns, "dispatcher", "deepep", "hybridep")
    forward, backward = (np.where(once, wide, narrow) for narrow, wide in zip(*BIAS_BYTES, strict=True))
    return forward * elements, backward * elements


def small_kernels_s(columns: Columns, behaviour: Behaviour) -> tuple[Any, Any]:
    """Seconds of a layer's router and of the bookkeeping of its tokens, forward and backward: many short kernels."""
    part = share(columns) * constants.SMALL_KERNEL_S.median
    forward, backward = behaviour.expert_operations
    return part * forward, part * backward
