"""How long one optimizer step takes, part by part, and how uncertain each part is: the one step-time model.

The order of a plan, its deadlines and cost, ``sweep size`` and the search ask this module. Every part is a
number or an array over candidates. Its constants are in ``sweep.physics.constants``, with sources; measured rates of a
cluster replace them (``sweep.physics.machine``), measured runs update the prediction (``sweep.physics.prediction``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sweep.physics import adapters, communication, constants, context, data_parallel, experts, kernels, pipeline
from sweep.physics.columns import Numbers, equals, mentions, read, recomputed_share
from sweep.physics.hardware import Gpu
from sweep.physics.kernels import Passes
from sweep.physics.machine import Machine
from sweep.physics.profiles import PROFILES, MemoryProfile
from sweep.physics.shapes import shape_columns
from sweep.physics.states import shards, stage_parameters
from sweep.physics.trainers import Behaviour, behaviour_of

PARTS = (
    "matmul",  # matrix products, recomputed ones included
    "attention",
    "memory",  # norms, activations, casts, loss, gradient accumulation: memory traffic
    "launch",  # the GPU waits for the host
    "tensor",  # tensor-parallel communication that is not hidden; likewise the next ones
    "context",
    "expert",
    "pipeline",  # sends between stages
    "blocked",  # what a host waits that is blocked by them
    "bubble",
    "data",  # gradient reduction and weight gathering
    "optimizer",
    "step",  # once per step: batch, loss, logging
)


def machine_of(gpu: Gpu, profile: MemoryProfile) -> Machine:
    """The rates of a kind of GPU, with the network that the profile's trainer is mostly run on."""
    return Machine(gpu=gpu, network=behaviour_of(profile.name).network)


def predict(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["builtin"]) -> dict[str, Any]:
    """Median seconds of one optimizer step by part, in the order of ``PARTS``; they add up to the busiest stage's step.

    Columns of a layout and shape, ``sequence_length``, ``dtype`` and ``gpus_per_node``. Unknown peaks and links count
    as nominal ones: that gives an order, but no reliable seconds.
    """
    machine, behaviour = machine_of(gpu, profile), behaviour_of(profile.name)
    columns = Numbers.of(machine.within_links(columns))
    layer, head = _layer(columns, machine, profile, behaviour), _head(columns, machine, profile, behaviour)
    layers, ends = _busiest(columns, profile, layer, head)
    mtp = np.asarray(shape_columns(columns).mtp_layers, dtype=np.float64)
    layers, ends = layers * (1 + mtp / shape_columns(columns).num_layers), ends * (1 + mtp)
    micro_batches = read(columns, "grad_accum")
    forward = layers * layer.forward + ends * head.forward
    backward = layers * layer.backward + ends * head.backward
    waits_for_host, unblocked = (
        _launches(columns, machine, profile, each, layers, forward, backward, layer.grouped)
        for each in (behaviour, replace(behaviour, blocking_sends=False))
    )
    launch = sum(waits_for_host)
    busy = {
        name: micro_batches * (layers * layer.parts[name] + ends * head.parts.get(name, 0.0)) for name in layer.parts
    }
    all_layers = np.asarray(shape_columns(columns).num_layers, dtype=np.float64)
    average = (all_layers * layer.total + head.total) / read(columns, "pp") + launch
    waits = communication.send_s(columns, machine) * (1 - behaviour.sends_hidden)
    passes = (forward + waits_for_host.forward, backward + waits_for_host.backward)
    data = data_parallel.exposed_s(columns, machine, profile, behaviour, *passes)
    return {
        "matmul": busy["matmul"],
        "attention": busy["attention"],
        "memory": busy["memory"],
        "launch": micro_batches * sum(unblocked) + data_parallel.host_s(columns, behaviour),
        "tensor": busy["tensor"],
        "context": busy["context"],
        "expert": busy["expert"],
        "pipeline": communication.sends(columns) * waits,
        "blocked": _send_waits_s(columns, behaviour) + micro_batches * (launch - sum(unblocked)),
        "bubble": pipeline.bubble_fraction(columns) * micro_batches * average,
        "data": data,
        "optimizer": _optimizer_s(columns, machine, profile, behaviour),
        "step": np.zeros_like(micro_batches) + constants.STEP_S.median,
    }


def step_time_s(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["builtin"]) -> Any:
    """Median seconds of one optimizer step."""
    return sum(predict(columns, gpu, profile).values())


def part_spreads(columns: Mapping[str, Any], gpu: Gpu, profile: MemoryProfile = PROFILES["builtin"]) -> dict[str, Any]:
    """Part -> standard deviation of the logarithm of its seconds, from those of the constants that it is made of.

    A measured rate has its own, smaller one.
    """
    machine = machine_of(gpu, profile)
    share = machine.by_dtype(columns, machine.matmul_spread)
    inside = machine.collective_spread(across=False)
    network = {
        a: np.where(communication.axis_nodes(columns, a) > 1, machine.between_spread(columns, a), inside)
        for a in ("tp", "cp", "ep", "dp")
    }
    traffic = machine.measured.spread if machine.measured.memory_bytes_per_s else machine.memory_share.spread
    kernel = constants.attention(behaviour_of(profile.name).attention, machine.architecture, gpu.name)[1]
    return {
        "matmul": np.hypot(share, constants.SLOWEST_GPU.spread),
        "attention": kernel.spread,
        "memory": np.hypot(traffic, 0.11),
        "launch": constants.LAUNCH_S.spread,
        "tensor": np.hypot(network["tp"], 0.2),
        "context": np.hypot(network["cp"], 0.3),
        "expert": np.hypot(network["ep"], 0.4),
        "pipeline": 0.5,
        "blocked": 1.5,
        "bubble": 0.15,
        "data": np.hypot(network["dp"], 0.35),
        "optimizer": 0.3,
        "step": constants.STEP_S.spread,
    }


@dataclass(frozen=True)
class _Cost:
    """Seconds of one layer, or of the output end, for one micro-batch."""

    parts: Mapping[str, Any]
    forward: Any
    backward: Any
    grouped: Any = 0.0
    """of the forward, seconds from a layer's counts of tokens per expert until their outputs are back"""

    @property
    def total(self) -> Any:
        return self.forward + self.backward


def _layer(columns: Mapping[str, Any], machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> _Cost:
    share = recomputed_share(columns, pipeline.chunks_per_rank(columns))
    full = share * equals(columns, "recompute", "full")
    selective = share * equals(columns, "recompute", "selective")
    unnamed = 1.0 * equals(columns, "recompute_modules", "")
    named, mlp, moe = (mentions(columns, "recompute_modules", module) for module in ("core_attn", "mlp", "moe"))
    core = selective * (profile.selective == "attention") * (unnamed + named)
    half = 0.5 * selective * mlp * (1 - experts.share(columns))  # of a layer's two exchanges over tp the MLP's
    cheap = selective * (profile.selective != "attention")
    shown = 1 - np.maximum(behaviour.tensor_hidden, read(columns, "tp_overlap") * constants.TENSOR_HIDDEN.median)
    trained = 0.0 if profile.frozen_weights else 1.0
    held = sum(stage_parameters(columns, shape_columns(columns), "middle", profile))
    placed = pipeline.layers(columns, shape_columns(columns), "middle", profile.placement)
    weights = held / np.maximum(placed, 1) / machine.memory_bytes_per_s
    accumulated = trained * weights * behaviour.gradient_traffic
    small = equals(columns, "dtype", "fp8") * (read(columns, "fp8_params") == 0) * behaviour.scales_dynamically
    cast = small * weights * kernels.CAST_BYTES  # in forward and in backward
    elementwise = kernels.elementwise(columns, machine, profile, behaviour)
    parallel, narrow = profile.sequence_parallel, behaviour.gathers_narrow
    tensor = communication.tensor_s(columns, machine, sequence_parallel=parallel, narrow=narrow) * shown
    tensor = tensor * experts.tensor_share(columns, behaviour)
    attention = kernels.attention(columns, machine, profile, behaviour)
    merging = context.merging_s(columns, machine, behaviour)
    exchanged = context.exposed_s(columns, machine, behaviour, attention)
    extra, adapted = experts.small_kernels_s(columns, behaviour), adapters.traffic_s(columns, machine, profile)
    eager = [moved / machine.memory_bytes_per_s for moved in experts.eager_bytes(columns, behaviour)]
    dropped = selective * kernels.dropped_s(columns, machine, profile, behaviour)
    products = kernels.products(columns, machine, behaviour, frozen=profile.frozen_weights)
    more = selective * kernels.made_again_s(columns, machine, behaviour)
    if behaviour.stops_early:
        more = more - full * kernels.last_product_s(columns, machine, behaviour)
    passes = {
        "matmul": _with(Passes(products.forward, products.backward + more), full + cheap * behaviour.products_again),
        "attention": _with(attention, full + core),
        "memory": _with(
            Passes(
                elementwise.forward + extra[0] + adapted[0] + cast + eager[0],
                elementwise.backward + accumulated + extra[1] + adapted[1] + cast + eager[1] + dropped,
            ),
            full + cheap,
        ),
        "tensor": _with(Passes(tensor, tensor), full + half),
        "context": _with(Passes(*(sum(pair) for pair in zip(merging, exchanged, strict=True))), full + core),
    }
    passes["expert"] = _with(_exchanges(columns, machine, behaviour, passes), full + selective * moe)
    forward, backward = (sum(one[i] for one in passes.values()) for i in (0, 1))
    grouped = kernels.routed_s(columns, machine, behaviour) + 0.5 * passes["expert"].forward
    return _Cost({name: sum(one) for name, one in passes.items()}, forward, backward, grouped)


def _exchanges(
    columns: Mapping[str, Any], machine: Machine, behaviour: Behaviour, passes: Mapping[str, Passes]
) -> Passes:
    """Of experts' exchanges what a layer waits for: with ``ep_overlap`` another micro-batch's work hides them.

    Each piece hides under its own of the other's work. Of pieces with exponentially distributed lengths, in all a and
    b, a b / (a + b) is hidden. So predicted, a step of Qwen3-30B-A3B on 16 H100 takes 38.1 and 29.1 s: measured 41.25
    and 31.31 (NVIDIA-NeMo/Megatron-Bridge, docs/training/communication-overlap.md).
    """
    sent, overlap = experts.exchange_s(columns, machine, behaviour), read(columns, "ep_overlap") > 0
    work = [sum(passes[name][i] for name in ("matmul", "attention", "memory")) for i in (0, 1)]
    hidden = [sent * cover / (sent + cover) for cover in work]
    return Passes(*(np.where(overlap, communication.waited_s(sent, cover), sent) for cover in hidden))


def _with(passes: Passes, again: Any) -> Passes:
    """The same with the share of its forward that backward repeats."""
    return Passes(passes.forward, passes.backward + again * passes.forward)


def _head(columns: Mapping[str, Any], machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> _Cost:
    product = kernels.output_products(columns, machine, frozen=profile.frozen_weights)
    loss = kernels.loss(columns, machine, behaviour)
    vocabulary = read(columns, "vocab_size") * read(columns, "hidden_size") / read(columns, "tp")
    vocabulary = 0.0 if profile.frozen_weights else vocabulary
    accumulated = vocabulary * behaviour.gradient_traffic / machine.memory_bytes_per_s
    parts = {"matmul": sum(product), "memory": loss + accumulated}
    return _Cost(parts, product.forward + 0.5 * loss, product.backward + 0.5 * loss + accumulated)


def _busiest(columns: Mapping[str, Any], profile: MemoryProfile, layer: _Cost, head: _Cost) -> tuple[Any, Any]:
    """(layers, output ends) of the stage that takes longest for a micro-batch."""
    shape = shape_columns(columns)
    layers = [pipeline.layers(columns, shape, stage, profile.placement) for stage in pipeline.STAGES]
    ends = [1.0 * pipeline.has_output(columns, stage) for stage in pipeline.STAGES]
    seconds = [
        np.where(pipeline.exists(columns, stage), mine * layer.total + end * head.total, 0.0)
        for stage, mine, end in zip(pipeline.STAGES, layers, ends, strict=True)
    ]
    longest = np.argmax(np.stack(np.broadcast_arrays(*seconds)), axis=0)
    return np.choose(longest, layers), np.choose(longest, ends)


def _launches(
    columns: Mapping[str, Any],
    machine: Machine,
    profile: MemoryProfile,
    behaviour: Behaviour,
    layers: Any,
    forward: Any,
    backward: Any,
    grouped: Any,
) -> Passes:
    """Seconds per micro-batch by which the host's work exceeds the GPU's.

    In forward the host reads how many tokens each expert got (tokens_per_expert.tolist() in Megatron Core's
    TEGroupedMLP): it has launched nothing of the experts then, and what follows hides only its own work.
    """
    adapted = adapters.host_operations(profile)
    each = machine.launch_s * (1 - mentions(columns, "cuda_graphs", experts.WHOLE))
    each = np.where(read(columns, "ep_overlap") > 0, constants.INTERLEAVED.median, 1.0) * each
    plain, router, layer = (1 - mentions(columns, "cuda_graphs", scope) for scope in ("attn", "moe_router", "moe"))
    split = behaviour.tensor_operations * (read(columns, "tp") > 1)
    gathers = 12.0 * (read(columns, "zero") == 3)
    routed, products = experts.host_operations(columns, behaviour), experts.launches(columns, machine, behaviour)
    mixed = [layer * (router * routed[i] + products[i]) for i in (0, 1)]
    first, second = (
        plain * (np.where(read(columns, "compile") > 0, 8.0, behaviour.operations[i]) + split + adapted[i])
        + gathers
        + mixed[i]
        for i in (0, 1)
    )
    moe = equals(columns, "recompute", "selective") * mentions(columns, "recompute_modules", "moe")
    again = equals(columns, "recompute", "full") * first + moe * mixed[0]
    accumulated = behaviour.gradient_operations * behaviour.layer_tensors
    host_forward = layers * first * each
    host_backward = layers * (second * 2 / 3 + again + accumulated) * each
    if behaviour.blocking_sends:
        floor = constants.CROSSING_LAYER_S.median + constants.CROSSING_RANK_S.median * read(columns, "tp")
        min_host = np.where(_stages_cross(columns), layers * floor, 0.0)
        host_forward, host_backward = (
            np.maximum(host_forward, min_host / 3),
            np.maximum(host_backward, min_host * 2 / 3),
        )
    after, hidden = layers * layer * products[0] * each, layers * grouped
    in_forward = np.maximum(host_forward - after - forward + hidden, 0.0) + np.maximum(after - hidden, 0.0)
    return Passes(in_forward, np.maximum(host_backward - backward, 0.0))


def _stages_cross(columns: Mapping[str, Any]) -> Any:
    return (read(columns, "pp") > 1) & (communication.axis_nodes(columns, "pp") > 1)


def _send_waits_s(columns: Mapping[str, Any], behaviour: Behaviour) -> Any:
    """Seconds per step that blocking sends wait: each micro-batch ``send_wait_s`` where a column states it."""
    if "send_wait_s" in columns:
        each = read(columns, "send_wait_s") * behaviour.blocking_sends
    else:
        gpus = read(columns, "dp") * read(columns, "tp") * read(columns, "pp") * read(columns, "cp")
        share = (gpus / read(columns, "gpus_per_node") / constants.WIDEST_SEEN) ** constants.SEND_WAIT_POWER
        each = constants.SEND_WAIT_S.median * share * behaviour.blocking_sends * _stages_cross(columns)
    return each * (read(columns, "grad_accum") + read(columns, "pp") - 1)


def _optimizer_s(columns: Mapping[str, Any], machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> Any:
    if profile.frozen_weights:
        return np.zeros_like(read(columns, "grad_accum"))
    dense, routed = stage_parameters(columns, shape_columns(columns), "first", profile)
    ways = [np.where(read(columns, "zero") >= 1, n, 1.0) for n in shards(columns)]
    return behaviour.optimizer_traffic * (dense / ways[0] + routed / ways[1]) / machine.memory_bytes_per_s
