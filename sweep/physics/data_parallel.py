"""What data parallelism sends, and how much of it the step waits for, by ZeRO stage and trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import communication, constants
from sweep.physics.columns import element_bytes, read
from sweep.physics.machine import Machine
from sweep.physics.profiles import MemoryProfile
from sweep.physics.shapes import input_embedding_parameters, shape_columns
from sweep.physics.states import shards, stage_parameters
from sweep.physics.trainers import Behaviour

Columns = Mapping[str, Any]


def sent(columns: Columns, machine: Machine, profile: MemoryProfile, behaviour: Behaviour) -> tuple[Any, Any, Any]:
    """Seconds per step, without overlap, of (gradient reduction, weight gathering, a tied embedding's gradient between
    the first and the last stage).

    Stage 0 all-reduces gradients once. Stages 1 and 2 scatter them and gather weights; FSDP scatters in stages 2 and 3
    for every micro-batch, or once under a pipeline. Stage 3 also gathers weights twice for every micro-batch (arXiv
    1910.02054 sec. 7), or once under a pipeline, which keeps them gathered. Frozen weights have no gradients.
    """
    shape = shape_columns(columns)
    stage = stage_parameters(columns, shape, "first", profile)
    zero, once = read(columns, "zero"), np.where(read(columns, "pp") > 1, 1.0, read(columns, "grad_accum"))
    gradient = np.where(element_bytes(columns) == 4, 4.0, gradient_comm_bytes(columns, behaviour))
    gradient = gradient * (not profile.frozen_weights)
    layers = np.maximum(read(columns, "num_layers") / read(columns, "pp"), 1)
    gradients: Any = 0.0
    weights: Any = 0.0
    for count, ways in zip(stage, shards(columns), strict=True):
        nodes = np.minimum(communication.axis_nodes(columns, "dp"), np.maximum(ways, 1))
        bucket = np.maximum(behaviour.bucket_bytes, behaviour.bucket_per_rank * gradient * ways)
        calls = np.maximum(np.minimum(count * gradient / bucket, 6 * layers), 1)
        calls = np.where(zero == 3, layers, calls)

        def moved(size: Any, kind: str, calls: Any = calls, ways: Any = ways, nodes: Any = nodes) -> Any:
            return communication.collective_s(columns, size, ways, nodes, machine, kind=kind, calls=calls, axis="dp")

        scattered = moved(count * gradient, "gather") * np.where(zero >= 2, once, 1.0)
        gradients = gradients + np.where(zero == 0, moved(count * gradient, "reduce"), scattered)
        gather_calls = np.where(zero == 3, layers, 1.0 if behaviour.weights_at_once else calls)
        gathered = moved(count * element_bytes(columns), "gather", gather_calls)
        again = np.where(read(columns, "pp") > 1, 1.0, 2 * once)
        updated = np.where(zero >= 1, 1.0, 0.0) * (not profile.frozen_weights)
        weights = weights + gathered * np.where(zero == 3, again, updated)
    return gradients, weights, _tied_s(columns, machine, shape, gradient)


def gradient_comm_bytes(columns: Columns, behaviour: Behaviour) -> Any:
    """Bytes of one reduced gradient: fp16 training with loss scaling reduces it in fp16."""
    return np.where(read(columns, "dtype") == "fp16", 2.0, behaviour.gradient_comm_bytes)


def _tied_s(columns: Columns, machine: Machine, shape: Any, gradient: Any) -> Any:
    pp = read(columns, "pp")
    tied = (pp > 1) & (np.asarray(shape.tied_embeddings) > 0)
    size = input_embedding_parameters(shape) / read(columns, "tp") * gradient
    nodes = np.where(communication.axis_nodes(columns, "pp") > 1, 2.0, 1.0)
    reduced = communication.collective_s(columns, size, 2.0, nodes, machine, kind="reduce", axis="pp")
    return np.where(tied, reduced, 0.0)


def exposed_s(
    columns: Columns, machine: Machine, profile: MemoryProfile, behaviour: Behaviour, forward: Any, backward: Any
) -> Any:
    """Seconds that the step waits. ``forward``, ``backward``: the busiest stage's seconds for one micro-batch, the
    waits for its host included.

    What a backward hides takes multiprocessors from it. The first gather and the last reduction are hidden by nothing.
    """
    gradients_s, weights_s, tied_s = sent(columns, machine, profile, behaviour)
    zero, again = read(columns, "zero"), read(columns, "grad_accum")
    overlaps = read(columns, "dp_overlap") if "dp_overlap" in columns else 1.0
    layers = np.maximum(read(columns, "num_layers") / read(columns, "pp"), 1)
    cover = overlaps * backward * np.where(zero >= 2, again, 1.0)
    ahead = forward * np.where(zero == 3, again, 1.0 * behaviour.overlaps_weights)
    half = np.where(zero == 3, 0.5, 1.0)
    in_forward = _waited(weights_s * half, ahead, layers)
    in_backward = _waited(gradients_s + np.where(zero == 3, 0.5 * weights_s, 0.0), cover, layers)
    return in_forward + in_backward + tied_s


def _waited(sent_s: Any, cover: Any, pieces: Any) -> Any:
    """What the step waits for: the last of the pieces at least."""
    return communication.waited_s(sent_s, np.minimum(sent_s * (1 - 1 / (pieces + 1)), cover))


def host_s(columns: Columns, behaviour: Behaviour) -> Any:
    """Seconds per step in which the host copies slices of sharded tensors one by one."""
    tensors = behaviour.layer_tensors * read(columns, "num_layers") / read(columns, "pp")
    ranks = read(columns, "dp") * read(columns, "cp")
    copied = np.where((read(columns, "zero") >= 1) & (ranks > 1), tensors * ranks, 0.0)
    return copied * behaviour.shard_operations * constants.LAUNCH_S.median
