"""How long one optimizer step takes: compute, recomputation, communication that is not hidden, bubble, optimizer.

Every part is a number or an array over candidates. Meant to order runs and to set expectations; the constants are those
of current trainers on NVIDIA GPUs, and a sweep corrects them by what it measures (``sweep.search.step_time_model``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import communication, flops, pipeline
from sweep.physics.columns import Numbers, equals, local_tokens, read
from sweep.physics.communication import Network
from sweep.physics.hardware import Gpu
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.shapes import shape_columns
from sweep.physics.states import shards, stage_parameters

_NOMINAL_PEAK = 1e14
_NOMINAL_MEMORY = 1e12
"""bytes/s, of a GPU with that peak: of those in ``sweep.physics.hardware`` half have between 0.3 and 0.6 of it"""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Efficiency of kernels, and of the program between them."""

    best_efficiency: float = 0.55
    """of the dense peak, in large matrix products together with the operations between them (norms, attention)"""
    half_speed_rows: float = 400.0
    """rows of a matrix product at which it runs at half of that: few rows do not fill the GPU"""
    half_speed_width: float = 200.0
    """columns per rank (hidden or MLP width over tp) at which it runs at half of that"""
    layer_launch_s: float = 2e-3
    """minimum seconds of one layer's forward and backward: the host launches kernels no faster"""
    hidden_data: float = 0.8
    """share of a backward pass that can hide gradient reduction"""
    never_hidden: float = 0.1
    """share of data-parallel communication that is never hidden: the first and last buckets"""
    hidden_tensor: float = 0.0
    """share of tensor-parallel communication that matrix products hide"""
    hidden_context: float = 0.7
    """share of key and value passing that attention hides"""
    optimizer_bytes: float = 24.0
    """bytes that an AdamW update reads and writes per parameter"""


SPEEDS: dict[str, Speed] = {"nanotron": Speed(layer_launch_s=1e-2)}
"""profile -> speed, where it differs: nanotron's eager modules and blocking sends make the host the bottleneck"""
NETWORKS: dict[str, Network] = {"nanotron": Network(send_latency_s=1e-2)}
"""profile -> network, where it differs: nanotron sends each tensor's shape before it, and waits"""


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step by part, for the busiest stage."""

    compute_s: Any
    recompute_s: Any
    tensor_s: Any
    context_s: Any
    expert_s: Any
    pipeline_s: Any
    bubble_s: Any
    data_s: Any
    optimizer_s: Any

    @property
    def total_s(self) -> Any:
        """Seconds of the step."""
        return sum(getattr(self, name) for name in self.__dataclass_fields__)


def predict(
    columns: Mapping[str, Any],
    gpu: Gpu,
    profile: MemoryProfile = PROFILES["ours"],
    network: Network | None = None,
    speed: Speed | None = None,
) -> StepTime:
    """Seconds of one optimizer step by part.

    Columns of a layout and shape, ``sequence_length``, ``dtype`` and ``gpus_per_node``. Unknown peaks and links count
    as nominal ones: that gives an order, but no reliable seconds.
    """
    columns = Numbers.of(columns)
    network = network or NETWORKS.get(profile.name, Network())
    speed = speed or SPEEDS.get(profile.name, Speed())
    forward, backward, again = _passes(columns, gpu, speed)
    micro_batches = read(columns, "grad_accum")
    compute, recompute = micro_batches * (forward + backward), micro_batches * again
    tensor = communication.tensor_s(columns, gpu, network) * (1 - speed.hidden_tensor)
    context = communication.context_s(columns, gpu, network) * (1 - speed.hidden_context)
    experts = communication.expert_s(columns, gpu, network)
    sends = communication.pipeline_s(columns, gpu, network)
    busy = compute + recompute + tensor + context + experts + sends
    return StepTime(
        compute,
        recompute,
        tensor,
        context,
        experts,
        sends,
        busy * pipeline.bubble_fraction(columns),
        _exposed_data(columns, gpu, profile, network, speed, backward),
        _optimizer_s(columns, gpu, profile, speed),
    )


def step_time_s(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["ours"]) -> Any:
    """Seconds of one optimizer step."""
    return predict(columns, gpu, profile).total_s


def tokens_per_second_per_gpu(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["ours"]) -> Any:
    """The sort key of runs: tokens of a step over its seconds and GPUs."""
    gpus = read(columns, "dp") * read(columns, "tp") * read(columns, "pp") * read(columns, "cp")
    sequences = read(columns, "dp") * read(columns, "micro_batch_size") * read(columns, "grad_accum")
    return sequences * read(columns, "sequence_length") / step_time_s(columns, gpu, profile) / gpus


def efficiency(columns: Mapping[str, Any], shape: Any, speed: Speed) -> Any:
    """Share of the peak that matrix products of this size reach: of rows (tokens) and of width per tp rank."""
    rows = local_tokens(columns)
    experts = np.asarray(shape.num_experts) > 0
    rows = np.where(experts, rows * np.maximum(shape.experts_per_token, 1) / np.maximum(shape.num_experts, 1), rows)
    width = np.minimum(shape.hidden_size, _width(shape)) / read(columns, "tp")
    return speed.best_efficiency * rows / (rows + speed.half_speed_rows) * width / (width + speed.half_speed_width)


def _passes(columns: Mapping[str, Any], gpu: Gpu, speed: Speed) -> tuple[Any, Any, Any]:
    """(forward, backward, recomputation) seconds of one micro-batch on the busiest stage."""
    shape = shape_columns(columns)
    per_token = flops.model_flops_per_token(shape, read(columns, "sequence_length")) / 3
    share = _busiest_share(columns, shape) / read(columns, "tp")
    rate = peaks_flops(columns, gpu) * efficiency(columns, shape, speed)
    forward = local_tokens(columns) * per_token * share / rate
    min_s = speed.layer_launch_s * read(columns, "num_layers") / read(columns, "pp") / 3
    forward, backward = np.maximum(forward, min_s), np.maximum(2 * forward, 2 * min_s)
    extra = np.where(
        equals(columns, "recompute", "full"), 1.0, np.where(equals(columns, "recompute", "selective"), 0.1, 0.0)
    )
    return forward, backward, extra * forward


def _busiest_share(columns: Mapping[str, Any], shape: Any) -> Any:
    """Part of the model's work that the busiest stage has, the output projection included."""
    pp, layers = read(columns, "pp"), np.asarray(shape.num_layers, dtype=np.float64)
    share = pipeline.cost_share(np.ones_like(pp), layers, shape)
    head = share - layers
    most = np.maximum(np.ceil(layers / pp), layers / pp + head * 0.5)
    return np.where(pp == 1, 1.0, np.minimum(most / share, 1.0))


def _exposed_data(
    columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile, network: Network, speed: Speed, backward: Any
) -> Any:
    """Exposed communication. Gradients go with the last backward, in stages 2, 3 with each; weights of 3 with all.

    Stages 1 and 2 gather weights between the optimizer step and the next forward, where nothing runs concurrently.
    """
    moved = communication.data_parallel(columns, gpu, network, profile)
    zero, again = read(columns, "zero"), read(columns, "grad_accum")
    cover = speed.hidden_data * backward * np.where(zero >= 2, again, 1.0)
    gradients = np.maximum(moved.gradients_s - cover, speed.never_hidden * moved.gradients_s)
    gathered = np.maximum(moved.weights_s - 1.5 * cover, speed.never_hidden * moved.weights_s)
    return gradients + np.where(zero == 3, gathered, moved.weights_s)


def _optimizer_s(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile, speed: Speed) -> Any:
    dense, routed = stage_parameters(columns, shape_columns(columns), "first", profile)
    ways = [np.where(read(columns, "zero") >= 1, n, 1.0) for n in shards(columns)]
    return speed.optimizer_bytes * (dense / ways[0] + routed / ways[1]) / memory_bytes_per_s(gpu)


def _width(shape: Any) -> Any:
    return np.where(np.asarray(shape.num_experts) > 0, shape.moe_intermediate_size, shape.intermediate_size)


def peaks_flops(columns: Mapping[str, Any], gpu: Gpu) -> Any:
    """FLOP/s of each candidate's dtype; a nominal figure if unknown."""
    dtype = np.asarray(columns["dtype"])
    found: Any = np.full(dtype.shape, _NOMINAL_PEAK)
    for name, value in gpu.peaks_flops.items():
        found = np.where(dtype == name, value, found)
    return found


def memory_bytes_per_s(gpu: Gpu) -> float:
    """Of the GPU's memory; a nominal figure if unknown."""
    return gpu.memory_bytes_per_s or _NOMINAL_MEMORY
