"""A rough step time and peak memory, to order runs and to guess their cost. No run is rejected by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import flops
from sweep.physics.hardware import Gpu
from sweep.physics.shapes import embedding_parameters, layer_parameters, shape_columns, total_parameters

_NOMINAL_PEAK = 1e14
_NOMINAL_LINK = 1e11
_MATMUL_EFFICIENCY = 0.6
_HALF_SPEED_TOKENS = 512.0
"""tokens of a micro-batch per rank at which matrix products run at half their best speed"""


def step_time_s(columns: Mapping[str, Any], gpu: Gpu) -> Any:
    """Seconds of one optimizer step: compute, bubble, and the part of communication that is not hidden.

    Columns of a layout, ``gpus``, ``gpus_per_node``, ``sequence_length``, ``global_batch_tokens`` and a shape.
    Unknown peaks and links count as nominal ones, which leaves an order but no seconds.
    """
    shape = shape_columns(columns)
    peak = _peak(columns["dtype"], gpu)
    per_rank = columns["micro_batch_size"] * columns["sequence_length"] / (columns["cp"] * columns["tp"])
    efficiency = _MATMUL_EFFICIENCY * per_rank / (per_rank + _HALF_SPEED_TOKENS)
    tokens_per_gpu = columns["global_batch_tokens"] / columns["gpus"]
    per_token = flops.model_flops_per_token(shape, columns["sequence_length"]) * _recompute_factor(columns)
    busy = tokens_per_gpu * per_token / (peak * efficiency) + _tensor_parallel_s(columns, gpu)
    stages = np.asarray(columns["pp"]) - 1
    return busy * (1 + stages / np.maximum(columns["grad_accum"], 1)) + _gradients_s(columns, shape, gpu)


def peak_memory_bytes(columns: Mapping[str, Any]) -> Any:
    """Bytes of the heaviest rank, by a fit to the Ultra-Scale Playbook's published runs.

    7.2 bytes per parameter that stays whole, 13.4 that ZeRO shards, (7 h + 18 H) s b per layer and TP rank in flight.
    """
    shape = shape_columns(columns)
    pp, tp = columns["pp"], columns["tp"]
    per_rank = (total_parameters(shape) - embedding_parameters(shape)) / (pp * tp) + embedding_parameters(shape) / tp
    zero = np.asarray(columns["zero"])
    states = 13.4 * per_rank / np.where(zero >= 1, columns["dp"], 1)
    weights = 7.2 * per_rank / np.where(zero == 3, columns["dp"], 1)
    experts = shape.moe_intermediate_size * (shape.experts_per_token + shape.shared_experts)
    width = np.maximum(shape.intermediate_size, experts)
    tokens = columns["micro_batch_size"] * columns["sequence_length"] / columns["cp"]
    kept = np.where(_is(columns, "recompute", "full"), 2 * shape.hidden_size, 7 * shape.hidden_size + 18 * width)
    layers_in_flight = shape.num_layers / pp * np.minimum(pp, np.maximum(columns["grad_accum"], 1))
    return states + weights + kept * tokens * layers_in_flight / tp


def _recompute_factor(columns: Mapping[str, Any]) -> Any:
    return np.where(
        _is(columns, "recompute", "full"), 4 / 3, np.where(_is(columns, "recompute", "selective"), 1.05, 1.0)
    )


def _is(columns: Mapping[str, Any], name: str, value: str) -> Any:
    return np.asarray(columns[name]) == value


def _peak(dtype: Any, gpu: Gpu) -> Any:
    peaks: Any = np.full(np.shape(dtype), _NOMINAL_PEAK)
    for name, peak in gpu.peaks_flops.items():
        peaks = np.where(np.asarray(dtype) == name, peak, peaks)
    return peaks


def _tensor_parallel_s(columns: Mapping[str, Any], gpu: Gpu) -> Any:
    """Four gathers and four scatters of the stage's 2-byte activations per layer, forward and backward."""
    tp = np.asarray(columns["tp"])
    tokens_times_layers = columns["global_batch_tokens"] / columns["gpus"] * columns["num_layers"]
    volume = 8 * 2 * tokens_times_layers * columns["hidden_size"] * (tp - 1)
    return volume / _bandwidth(tp > columns["gpus_per_node"], gpu)


def _gradients_s(columns: Mapping[str, Any], shape: Any, gpu: Gpu) -> Any:
    """Half of the gradients' reduction and of the weights' gathering, the rest taken as hidden."""
    dp, zero = np.asarray(columns["dp"]), np.asarray(columns["zero"])
    mine = layer_parameters(shape) * shape.num_layers / (columns["pp"] * columns["tp"])
    passes = np.where(zero == 3, 3 * np.maximum(columns["grad_accum"], 1), 2)
    crosses = np.asarray(columns["gpus"]) > columns["gpus_per_node"]
    return 0.5 * passes * 2 * mine * (dp - 1) / dp / _bandwidth(crosses, gpu)


def _bandwidth(crosses_nodes: Any, gpu: Gpu) -> Any:
    inside = (gpu.link_bytes_per_s or 2 * _NOMINAL_LINK) / 2
    between = gpu.network_bytes_per_s or inside / 8
    return np.where(crosses_nodes, between, inside)
