"""How much each axis of a layout sends, and how long that takes, alone: bytes per GPU and seconds per optimizer step.

Collectives over n ranks of a buffer of b bytes cost (n-1)/n b on the wire for gather and scatter, twice that for
all-reduce (ring; Thakur et al. 2005), plus a latency per step of the algorithm. A ring has n-1 steps per pass, a tree
2 log2 n with pipelined chunks (Sanders et al. 2009, NCCL's double binary trees): the faster one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import pipeline
from sweep.physics.columns import element_bytes, equals, local_tokens, read
from sweep.physics.hardware import Gpu
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.shapes import shape_columns
from sweep.physics.states import shards, stage_parameters

_NOMINAL_LINK = 2e11


@dataclass(frozen=True, kw_only=True)
class Network:
    """Efficiency of collectives, as fractions of link bandwidth. Defaults: NCCL on nodes of 8 H100.

    Near the bus bandwidths that the Ultra-Scale Playbook measured (256 MB): all-reduce 436 GB/s on one node, 362 on 2
    and less with every doubling, a part of it latency; all-gather and reduce-scatter 250 and 185.
    """

    reduce_share: float = 0.95
    """all-reduce, of the links (in-network reduction helps it)"""
    gather_share: float = 0.6
    """gathers, scatters and exchanges, of the links"""
    congestion: float = 0.2
    """bandwidth between n nodes falls as (2 / n) to this power"""
    inside_latency_s: float = 4e-6
    """per step of a ring or tree inside a node"""
    between_latency_s: float = 5e-5
    """per step between nodes"""
    send_latency_s: float = 2e-4
    """of one send to the next pipeline stage, including the waiting time of both sides"""


def inside_bytes_per_s(gpu: Gpu) -> float:
    """One direction of the links inside a node."""
    return (gpu.link_bytes_per_s or 2 * _NOMINAL_LINK) / 2


def between_bytes_per_s(gpu: Gpu, network: Network, nodes: Any) -> Any:
    """One GPU's share of the network when this many nodes take part."""
    alone = gpu.network_bytes_per_s or inside_bytes_per_s(gpu) / 8
    return alone * (2 / np.maximum(nodes, 2)) ** network.congestion


def axis_nodes(columns: Mapping[str, Any], axis: str) -> Any:
    """Nodes that one group of the axis spans, ranks being numbered tp first, then cp, dp and pp (Megatron's order)."""
    inner = {"tp": (), "cp": ("tp",), "ep": (), "dp": ("tp", "cp"), "pp": ("tp", "cp", "dp")}[axis]
    stride = np.ones_like(read(columns, "tp"))
    for name in inner:
        stride = stride * read(columns, name)
    width = read(columns, axis)
    return np.maximum(np.ceil(np.minimum(width, stride * width / read(columns, "gpus_per_node"))), 1)


def collective_s(
    bytes_: Any, ranks: Any, nodes: Any, gpu: Gpu, network: Network, *, kind: str = "gather", calls: Any = 1
) -> Any:
    """Seconds of ``calls`` collectives that move ``bytes_`` in all. kind: gather (and scatter, exchange) or reduce.

    Between nodes every GPU of a node carries its part: a group of several ranks per node sends as many times less
    over each network card.
    """
    passes = 2.0 if kind == "reduce" else 1.0
    share = network.reduce_share if kind == "reduce" else network.gather_share
    per_node = np.maximum(ranks / nodes, 1)
    wire = passes * bytes_ * (ranks - 1) / np.maximum(ranks, 1) / share
    inside = wire / inside_bytes_per_s(gpu)
    between = np.where(nodes > 1, wire / per_node / between_bytes_per_s(gpu, network, nodes), 0.0)
    ring = (per_node - 1) * network.inside_latency_s + (nodes - 1) * network.between_latency_s
    hops = np.log2(per_node) * network.inside_latency_s + np.log2(np.maximum(nodes, 1)) * network.between_latency_s
    latency = passes * calls * np.where(nodes > 1, np.minimum(ring, 2 * hops), ring)
    return np.where(ranks > 1, np.maximum(inside, between) + latency, 0.0)


def tensor_bytes(columns: Mapping[str, Any]) -> Any:
    """Bytes that one GPU gathers and scatters over tp per step (arXiv 2205.05198 sec. 4.2.2).

    Two gathers and two scatters of the stage's activations per layer in forward, as many in backward, and two gathers
    more where inputs are gathered again or layers are recomputed in full.
    """
    again = np.where(equals(columns, "recompute", "full"), 4.0, 0.0) + 2
    return (8.0 + again) * _activation_bytes(columns) * _stage_layers(columns) * (read(columns, "tp") > 1)


def tensor_s(columns: Mapping[str, Any], gpu: Gpu, network: Network) -> Any:
    """Seconds of tensor-parallel communication per step, without overlap."""
    calls = 10.0 * _stage_layers(columns) * read(columns, "grad_accum")
    total = tensor_bytes(columns) * read(columns, "grad_accum")
    return collective_s(total, read(columns, "tp"), axis_nodes(columns, "tp"), gpu, network, calls=calls)


@dataclass(frozen=True)
class DataParallel:
    """Seconds per step of what data parallelism sends, without overlap."""

    gradients_s: Any
    """all-reduce (stage 0) or reduce-scatter: a backward pass can hide it"""
    weights_s: Any
    """gathering of weights: after the optimizer step (stages 1 and 2), or layer by layer (stage 3)"""


def data_parallel(
    columns: Mapping[str, Any], gpu: Gpu, network: Network, profile: MemoryProfile = PROFILES["ours"]
) -> DataParallel:
    """Seconds of gradient reduction and weight gathering per step.

    Stage 0 all-reduces gradients. Stages 1 and 2 scatter them and gather weights, 2 scatters for every micro-batch.
    Stage 3 also gathers weights twice for every micro-batch (arXiv 1910.02054 sec. 7).
    """
    stage = stage_parameters(columns, shape_columns(columns), "first", profile)
    zero, again = read(columns, "zero"), read(columns, "grad_accum")
    gradient = 4.0 if profile.fsdp else profile.gradient_bytes
    layers = _stage_layers(columns)
    gradients: Any = 0.0
    weights: Any = 0.0
    for count, ways in zip(stage, shards(columns), strict=True):
        nodes = np.minimum(axis_nodes(columns, "dp"), np.maximum(ways, 1))
        reduce = collective_s(count * gradient, ways, nodes, gpu, network, kind="reduce", calls=layers)
        scatter = collective_s(count * gradient, ways, nodes, gpu, network, calls=layers)
        gather = collective_s(count * element_bytes(columns), ways, nodes, gpu, network, calls=layers)
        gradients = gradients + np.where(zero == 0, reduce, scatter * np.where(zero >= 2, again, 1.0))
        weights = weights + gather * np.where(zero == 3, 2 * again, np.where(zero >= 1, 1.0, 0.0))
    return DataParallel(gradients, weights)


def pipeline_s(columns: Mapping[str, Any], gpu: Gpu, network: Network) -> Any:
    """Seconds that a stage waits for activations and their gradients per step: one send each way per chunk."""
    crossings = 2 * pipeline.chunks_per_rank(columns) * read(columns, "grad_accum")
    size = _activation_bytes(columns) / read(columns, "tp")
    crosses = axis_nodes(columns, "pp") > 1
    speed = np.where(crosses, between_bytes_per_s(gpu, network, 2.0), inside_bytes_per_s(gpu))
    return np.where(read(columns, "pp") > 1, crossings * (size / speed + network.send_latency_s), 0.0)


def context_s(columns: Mapping[str, Any], gpu: Gpu, network: Network) -> Any:
    """Seconds of passing keys and values round the context-parallel ring per step: forward once, backward twice."""
    shape = shape_columns(columns)
    kv = (
        2
        * element_bytes(columns)
        * shape.num_kv_heads
        * shape.head_dim
        / np.minimum(read(columns, "tp"), shape.num_kv_heads)
    )
    cp = read(columns, "cp")
    total = 3 * kv * local_tokens(columns) * cp * _stage_layers(columns) * read(columns, "grad_accum")
    calls = 3 * _stage_layers(columns) * read(columns, "grad_accum")
    return collective_s(total, cp, axis_nodes(columns, "cp"), gpu, network, calls=calls)


def expert_s(columns: Mapping[str, Any], gpu: Gpu, network: Network) -> Any:
    """Seconds of sending tokens to their experts and back per step: four exchanges per layer."""
    shape = shape_columns(columns)
    size = _activation_bytes(columns) * np.maximum(shape.experts_per_token, 1) / read(columns, "tp")
    total = 4 * size * _stage_layers(columns) * read(columns, "grad_accum")
    calls = 4 * _stage_layers(columns) * read(columns, "grad_accum")
    ep = read(columns, "ep")
    nodes = np.maximum(np.ceil(ep / read(columns, "gpus_per_node")), 1)
    return collective_s(total, ep, nodes, gpu, network, calls=calls)


def _activation_bytes(columns: Mapping[str, Any]) -> Any:
    """One activation of the residual path of a micro-batch, whole."""
    return element_bytes(columns) * local_tokens(columns) * read(columns, "hidden_size")


def _stage_layers(columns: Mapping[str, Any]) -> Any:
    return read(columns, "num_layers") / read(columns, "pp")
