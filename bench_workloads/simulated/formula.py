"""Time and memory of a simulated step. Standard library only, and not the planner's own model.

Plausible, not accurate: larger micro-batches are more efficient, tensor parallelism across nodes hurts, pipelines
have bubbles, sharded weights are gathered again. A simulation needs a plausible landscape, not exact values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.contract import Run

_BEST_MFU = 0.58
_HALF_EFFICIENT_TOKENS = 900.0
"""tokens per rank and micro-batch at which the matrices run at half of their peak speed"""
_LINK_BYTES_PER_S = 450e9
_NETWORK_BYTES_PER_S = 40e9
_STEP_OVERHEAD_S = 0.004
_TRIVIAL_STEP_S = 0.01
"""seconds of a step where the run has no shape"""
_RECOMPUTED = {"none": 1.0, "selective": 1.04, "full": 1.32}


def step_s(run: Run, peak_tflops: float) -> float:
    """Seconds of one optimizer step."""
    if not run.shape:
        return _TRIVIAL_STEP_S
    layout = run.layout
    tokens = run.global_batch_tokens / layout.gpus
    per_micro_batch = layout.micro_batch_size * run.sequence_length / (layout.cp * layout.tp)
    efficiency = _BEST_MFU * per_micro_batch / (per_micro_batch + _HALF_EFFICIENT_TOKENS)
    busy = 6 * _parameters(run.shape, active=True) * tokens * _RECOMPUTED.get(layout.recompute, 1.0)
    inside = layout.tp <= run.gpus_per_node
    volume = 16 * tokens * _of(run.shape, "num_layers") * _of(run.shape, "hidden_size") * (layout.tp - 1)
    exchange = volume / (_LINK_BYTES_PER_S if inside else _NETWORK_BYTES_PER_S)
    compute = busy / (peak_tflops * 1e12 * efficiency) + exchange
    bubble = (layout.pp - 1) / max(1, layout.grad_accum)
    replicas = layout.dp * layout.cp
    bandwidth = _LINK_BYTES_PER_S if run.nodes == 1 else _NETWORK_BYTES_PER_S
    passes = 1.5 * layout.grad_accum if layout.zero == 3 else 1.0
    gradients = 0.4 * passes * 4 * parameters_here(run) * (replicas - 1) / replicas / bandwidth
    return compute * (1 + bubble) + gradients + _STEP_OVERHEAD_S * layout.grad_accum


def peak_memory_bytes(run: Run, stage: int = 0) -> int:
    """Bytes of a rank of the given pipeline stage: 18 per parameter less what ZeRO shards, and activations."""
    if not run.shape:
        return 0
    layout, shards = run.layout, run.layout.dp * run.layout.cp
    mine = parameters_here(run)
    weights = 6 * mine / (shards if layout.zero == 3 else 1)
    gradients = 4 * mine / (shards if layout.zero >= 2 else 1)
    optimizer = 8 * mine / (shards if layout.zero >= 1 else 1)
    tokens = layout.micro_batch_size * run.sequence_length / layout.cp
    per_layer = {"none": 34, "selective": 22, "full": 2}.get(layout.recompute, 34) * _of(run.shape, "hidden_size")
    in_flight = min(layout.grad_accum, layout.pp - stage)
    activations = tokens * per_layer * _of(run.shape, "num_layers") / layout.pp * in_flight / layout.tp
    return int(weights + gradients + optimizer + float(activations))


def parameters_here(run: Run) -> int:
    """Parameters of one rank before ZeRO shards them: an equal share over tp and pp."""
    return int(_parameters(run.shape) / (run.layout.tp * run.layout.pp)) if run.shape else 0


def _parameters(shape: Mapping[str, Any], *, active: bool = False) -> float:
    experts = _of(shape, "experts_per_token") if active else _of(shape, "num_experts")
    width = _of(shape, "intermediate_size")
    if _of(shape, "num_experts"):
        width = (experts + _of(shape, "shared_experts")) * (_of(shape, "moe_intermediate_size") or width)
    hidden = _of(shape, "hidden_size")
    return _of(shape, "num_layers") * (3 * hidden * width + 4 * hidden**2) + 2 * _of(shape, "vocab_size") * hidden


def _of(shape: Mapping[str, Any], name: str) -> float:
    return float(shape.get(name) or 0)
