"""The parts of a step's time, one column each: the fitted model weights them by measurements.

Each part is seconds by a nominal constant (links, launch and network latencies of current clusters). A sweep fits
a correction factor per part for its cluster and trainer: a few factors apply to all cells at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import communication, flops
from sweep.physics.columns import read
from sweep.physics.hardware import Gpu
from sweep.physics.shapes import active_parameters, embedding_parameters, shape_columns, total_parameters
from sweep.physics.step_time import memory_bytes_per_s, peaks_flops

_BEST_EFFICIENCY = 0.6
_HALF_SPEED_ROWS = 400.0
_HALF_SPEED_WIDTH = 350.0
_LAYER_LAUNCH_S = 1e-3
_MICRO_BATCH_PER_NODE_S = 1e-2
_MICRO_BATCH_SYNC_S = 1e-3
_STEP_S = 2e-2

NAMES = (
    *("work", "few_rows", "narrow", "launch", "tp_inside", "tp_across", "tp_across_latency", "pipeline_sends"),
    *("gradients", "gradients_each", "pipeline_latency", "micro_batch_latency", "nodes", "optimizer", "sharding"),
    "fixed",
)


def time_terms(columns: Mapping[str, Any], gpu: Gpu) -> Any:
    """Seconds of each part of one optimizer step, (candidates, parts) in the order of ``NAMES``.

    Columns of a layout and a shape, ``sequence_length``, ``dtype`` and ``gpus_per_node``.
    """
    parts = _compute(columns, gpu) | _between_gpus(columns, gpu) | _per_step(columns, gpu)
    stacked = np.broadcast_arrays(*(np.atleast_1d(parts[name]) for name in NAMES))
    return np.maximum(np.stack(stacked, axis=1).astype(np.float64), 1e-9)


def _compute(columns: Mapping[str, Any], gpu: Gpu) -> dict[str, Any]:
    """Matrix products, their efficiency losses, and kernel launches; with the pipeline's bubble."""
    shape, tp, pp = shape_columns(columns), read(columns, "tp"), read(columns, "pp")
    gas, rows = read(columns, "grad_accum"), _rows(columns)
    again = np.where(np.asarray(columns["recompute"]) == "full", 4 / 3, 1.0)
    per_token = flops.model_flops_per_token(shape, read(columns, "sequence_length")) * again
    work = rows * gas * per_token / (tp * pp) / peaks_flops(columns, gpu) / _BEST_EFFICIENCY * _busy(columns)
    return {
        "work": work,
        "few_rows": work * _HALF_SPEED_ROWS / rows,
        "narrow": work * _HALF_SPEED_WIDTH * tp / shape.hidden_size,
        "launch": _LAYER_LAUNCH_S * gas * shape.num_layers / pp * _busy(columns),
    }


def _between_gpus(columns: Mapping[str, Any], gpu: Gpu) -> dict[str, Any]:
    """Tensor, context and pipeline communication: volumes by link, and latencies."""
    shape, tp, pp = shape_columns(columns), read(columns, "tp"), read(columns, "pp")
    gas, rows, cp = read(columns, "grad_accum"), _rows(columns), read(columns, "cp")
    layers, wide = gas * shape.num_layers / pp * _busy(columns), tp * cp > read(columns, "gpus_per_node")
    inside, between = _links(gpu)
    volume = 16 * rows * layers * shape.hidden_size * ((tp - 1) / tp + (cp - 1) / cp)
    link = np.where(_nodes(columns) > 1, between, inside)
    piped = (pp > 1) * 1.0
    return {
        "tp_inside": np.where(wide, 0.0, volume / inside),
        "tp_across": np.where(wide, volume / between, 0.0),
        "tp_across_latency": np.where(wide, _MICRO_BATCH_SYNC_S * layers, 0.0),
        "pipeline_sends": piped * gas * 4 * rows * shape.hidden_size / tp / link * _busy(columns),
        "pipeline_latency": piped * _MICRO_BATCH_PER_NODE_S * (gas + pp - 1) * _nodes(columns),
        "micro_batch_latency": _MICRO_BATCH_PER_NODE_S * gas * _nodes(columns),
    }


def _per_step(columns: Mapping[str, Any], gpu: Gpu) -> dict[str, Any]:
    """Gradient reduction, ZeRO's gathering, the optimizer, and a constant per step."""
    shape, zero, gas = shape_columns(columns), read(columns, "zero"), read(columns, "grad_accum")
    ways = read(columns, "dp") * read(columns, "cp")
    layers = (total_parameters(shape) - embedding_parameters(shape)) / (read(columns, "pp") * read(columns, "tp"))
    mine = layers + embedding_parameters(shape) / read(columns, "tp")
    inside, between = _links(gpu)
    ring = 2 * mine * (ways - 1) / ways / np.where(_nodes(columns) > 1, between, inside)
    gathers = np.where(zero == 3, 2 * gas, np.where(zero > 0, 1.0, 0.0))
    return {
        "gradients": 2 * ring,
        "gradients_each": 0.2 * ring * gas,
        "nodes": _MICRO_BATCH_PER_NODE_S * _nodes(columns),
        "optimizer": 12 * mine / np.where(zero > 0, ways, 1.0) / memory_bytes_per_s(gpu),
        "sharding": gathers * ring * active_parameters(shape) / total_parameters(shape),
        "fixed": np.full_like(ring, _STEP_S),
    }


def _rows(columns: Mapping[str, Any]) -> Any:
    """Tokens of a micro-batch on one rank."""
    return read(columns, "micro_batch_size") * read(columns, "sequence_length") / read(columns, "cp")


def _busy(columns: Mapping[str, Any]) -> Any:
    """The factor by which the bubble lengthens a 1F1B step."""
    return 1 + (read(columns, "pp") - 1) / np.maximum(read(columns, "grad_accum"), 1)


def _nodes(columns: Mapping[str, Any]) -> Any:
    return read(columns, "nodes")


def _links(gpu: Gpu) -> tuple[float, float]:
    """(inside a node, between nodes): bytes per second and direction."""
    return communication.inside_bytes_per_s(gpu), communication.between_bytes_per_s(gpu, communication.Network(), 2)
