"""The parts of a step of a trainer of which nothing is known: all amounts of work and communication, none hidden.

What a trainer hides behind what, and what its host waits for, is known for those with a profile
(``sweep.physics.trainers``). Of any other only the amounts are: each is seconds by a nominal constant, and its factor
is as good as unknown until runs were measured. So nothing that could matter has a part of zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import flops
from sweep.physics.columns import local_tokens, read
from sweep.physics.machine import Machine
from sweep.physics.shapes import active_parameters, embedding_parameters, shape_columns, total_parameters

SPREAD = 1.0
"""standard deviation of the logarithm of each part's factor"""
LEAST_S = 1e-9
_EFFICIENCY = 0.6
"""of the peak FLOP/s, in large products"""
_HALF_SPEED_ROWS, _HALF_SPEED_WIDTH = 400.0, 350.0
_HOST_S = 1e-3
"""host time of a layer, a micro-batch, a message: eager kernels of 10 us each"""
_STEP_S = 2e-2

NAMES = (
    *("work", "few_rows", "narrow", "launch", "tp_inside", "tp_across", "tp_across_latency", "pipeline_sends"),
    *("gradients", "gradients_each", "pipeline_latency", "micro_batch_latency", "nodes", "optimizer", "sharding"),
    "fixed",
)

NETWORK_PARTS = ("tp_across", "pipeline_sends", "gradients", "gradients_each", "sharding")
"""parts that cross the network between nodes: one rate, however uncertain, is in all of them"""
CONGESTION = 0.34
"""standard deviation, per doubling of the nodes, of the logarithm by which that rate falls: in the Ultra-Scale
Playbook's measurements the all-reduce of 2 to 64 nodes falls by this much per doubling, from 362 to 65 GB/s; on a
network that is not oversubscribed it hardly does"""
CAUSES = ("network", "congestion")
"""what is uncertain in several parts at once"""
LOADINGS = np.array([[1.0 * (name in NETWORK_PARTS)] * len(CAUSES) for name in NAMES])
"""(parts, causes) which parts share a cause"""


def causes(columns: Mapping[str, Any], machine: Machine) -> Any:
    """(candidates, causes) by how much each cause may move a run's parts, as a standard deviation of the logarithm."""
    nodes = np.atleast_1d(read(columns, "nodes"))
    stated = "network_bytes_per_s" in columns or machine.gpu.network_bytes_per_s or machine.measured.between_bytes_per_s
    rate = np.where(nodes > 1, machine.collective_spread() if stated else SPREAD, 0.0)
    falls = np.where(nodes > 1, CONGESTION * np.log2(nodes / 2), 0.0)
    return np.stack([rate, falls], axis=1)


def amounts(columns: Mapping[str, Any], machine: Machine) -> Any:
    """Seconds of each part of one optimizer step, (candidates, parts) in the order of ``NAMES``.

    Columns of a layout and a shape, ``sequence_length``, ``dtype`` and ``gpus_per_node``.
    """
    parts = _compute(columns, machine) | _between_gpus(columns, machine) | _per_step(columns, machine)
    size = max(np.size(part) for part in parts.values())
    stacked = np.stack([np.broadcast_to(parts[name], size) for name in NAMES], axis=1)
    return np.maximum(stacked.astype(np.float64), LEAST_S)


def _compute(columns: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Matrix products, their efficiency losses, and kernel launches; with the pipeline's bubble."""
    shape, tp, pp = shape_columns(columns), read(columns, "tp"), read(columns, "pp")
    gas, rows = read(columns, "grad_accum"), local_tokens(columns)
    again = np.where(np.asarray(columns["recompute"]) == "full", 4 / 3, 1.0)
    per_token = flops.model_flops_per_token(shape, read(columns, "sequence_length")) * again
    work = rows * gas * per_token / (tp * pp) / machine.by_dtype(columns, machine.peak) / _EFFICIENCY * _busy(columns)
    return {
        "work": work,
        "few_rows": work * _HALF_SPEED_ROWS / rows,
        "narrow": work * _HALF_SPEED_WIDTH * tp / shape.hidden_size,
        "launch": _HOST_S * gas * shape.num_layers / pp * _busy(columns),
    }


def _between_gpus(columns: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Tensor, context and pipeline communication: volumes by link, and latencies."""
    shape, tp, pp = shape_columns(columns), read(columns, "tp"), read(columns, "pp")
    gas, rows, cp = read(columns, "grad_accum"), local_tokens(columns), read(columns, "cp")
    layers, wide = gas * shape.num_layers / pp * _busy(columns), tp * cp > read(columns, "gpus_per_node")
    inside, between = machine.inside_bytes_per_s, machine.between_bytes_per_s(columns)
    volume = 16 * rows * layers * shape.hidden_size * ((tp - 1) / tp + (cp - 1) / cp)
    link = np.where(read(columns, "nodes") > 1, between, inside)
    piped = pp > 1
    return {
        "tp_inside": np.where(wide, 0.0, volume / inside),
        "tp_across": np.where(wide, volume / between, 0.0),
        "tp_across_latency": np.where(wide, _HOST_S * layers, 0.0),
        "pipeline_sends": piped * gas * 4 * rows * shape.hidden_size / tp / link * _busy(columns),
        "pipeline_latency": piped * _HOST_S * 4 * (gas + pp - 1),
        "micro_batch_latency": _HOST_S * gas,
    }


def _per_step(columns: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Gradient reduction, ZeRO's gathering, the optimizer, and a constant per step."""
    shape, zero, gas = shape_columns(columns), read(columns, "zero"), read(columns, "grad_accum")
    ways = read(columns, "dp") * read(columns, "cp")
    layers = (total_parameters(shape) - embedding_parameters(shape)) / (read(columns, "pp") * read(columns, "tp"))
    mine = layers + embedding_parameters(shape) / read(columns, "tp")
    inside, between = machine.inside_bytes_per_s, machine.between_bytes_per_s(columns)
    ring = 2 * mine * (ways - 1) / ways / np.where(read(columns, "nodes") > 1, between, inside)
    gathers = np.where(zero == 3, 2 * gas, 1.0 * (zero > 0))
    return {
        "gradients": 2 * ring,
        "gradients_each": 0.2 * ring * gas,
        "nodes": _STEP_S / 2 * np.log2(read(columns, "nodes")),
        "optimizer": 12 * mine / np.where(zero > 0, ways, 1.0) / machine.memory_bytes_per_s,
        "sharding": gathers * ring * active_parameters(shape) / total_parameters(shape),
        "fixed": np.full_like(ring, _STEP_S),
    }


def _busy(columns: Mapping[str, Any]) -> Any:
    """The factor by which the bubble lengthens a 1F1B step."""
    return 1 + (read(columns, "pp") - 1) / np.maximum(read(columns, "grad_accum"), 1)
