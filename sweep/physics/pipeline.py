"""Pipelines: which layers a stage holds, how many micro-batches it stores, and how long it is idle.

Sources: 1F1B and interleaved, Narayanan et al. 2021 (arXiv 2104.04473 sec. 2.2) and Korthikanti et al. 2022
(arXiv 2205.05198 sec. 4.2.3); zero bubble, Qi et al. 2024 (arXiv 2401.10241); DualPipeV, DeepSeek-V3 (2412.19437).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sweep.physics import shapes
from sweep.physics.columns import equals, read
from sweep.physics.schedules import LOOPED, V_SCHEDULES, looped_stages

STAGES = ("first", "middle", "last")
"""the ranks of a pipeline that can be the heaviest; with pp = 1 only "first", with pp = 2 no "middle" """


def chunks_per_rank(columns: Mapping[str, Any]) -> Any:
    """Pipeline stages that each rank holds."""
    looped = np.where(equals(columns, "pp_schedule", *LOOPED), looped_stages(read(columns, "virtual_stages")), 1.0)
    return np.where(equals(columns, "pp_schedule", *V_SCHEDULES), 2.0, looped)


def has_output(columns: Mapping[str, Any], stage: str) -> Any:
    """Whether the rank computes logits and loss."""
    alone = read(columns, "pp") == 1
    v_shaped = equals(columns, "pp_schedule", *V_SCHEDULES)
    if stage == "first":
        return alone | v_shaped
    return np.zeros_like(alone) if stage == "middle" else ~v_shaped | alone


def has_embedding(columns: Mapping[str, Any], stage: str) -> Any:
    """Whether the rank looks up token embeddings."""
    alone = read(columns, "pp") == 1
    return np.ones_like(alone) if stage == "first" else np.zeros_like(alone) | (alone & (stage == "last"))


def exists(columns: Mapping[str, Any], stage: str) -> Any:
    """Whether a pipeline of that many stages has such a rank apart from the others."""
    min_stages = {"first": 1, "middle": 3, "last": 2}[stage]
    return read(columns, "pp") >= min_stages


def layers(columns: Mapping[str, Any], shape: Any, stage: str, placement: str = "even") -> Any:
    """Layers of the rank.

    "even": as equal as possible, more in earlier stages. "cost": stages take layers until their share of all
    parameters that are multiplied by is passed, the output projection included (nanotron). "balanced": so that the
    heaviest stage is as light as possible, the output projection included.
    """
    pp = read(columns, "pp")
    depth = np.asarray(shape.num_layers, dtype=np.float64)
    if placement == "balanced":
        return _layers_balanced(columns, pp, depth, shape, stage)
    if placement == "cost":
        return _layers_by_cost(pp, depth, shape, stage)
    whole, rest = np.floor(depth / pp), depth % pp
    if stage == "first":
        return whole + (rest > 0)
    return whole + ((rest > 1) if stage == "middle" else 0)


def _layers_balanced(columns: Mapping[str, Any], pp: Any, depth: Any, shape: Any, stage: str) -> Any:
    """Stages take layers one by one, the lightest first; the output projection weighs as many layers as its FLOPs.

    All stages but the last then have c layers, the last max(1, ceil(c - weight)), and the first of them one more: c is
    the largest with which these are no more than the model's layers.
    """
    stages = pp * chunks_per_rank(columns)
    weight = output_layers(depth, shape)
    level = np.minimum((depth - 1) // np.maximum(stages - 1, 1), (depth + weight) // stages)
    level = np.maximum(level, 1.0)
    last = np.maximum(np.ceil(level - weight), 1.0)
    spare = np.maximum(depth - (stages - 1) * level - last, 0)
    return np.where(pp == 1, depth, _of_rank(columns, pp, stages, level, last, spare, stage))


def _of_rank(columns: Mapping[str, Any], pp: Any, stages: Any, level: Any, last: Any, spare: Any, stage: str) -> Any:
    """Layers of a rank's stages: the first ``spare`` stages of the pipeline have one more than the level."""
    rank = {"first": 0.0, "middle": 1.0, "last": pp - 1}[stage]
    v_shape = equals(columns, "pp_schedule", *V_SCHEDULES)
    loops = stages / pp
    further = np.where(spare > rank, np.floor((spare - rank - 1) / pp) + 1, 0)
    looped = loops * level + np.minimum(further, loops)
    looped = np.where(rank == pp - 1, looped - level + last, looped)
    back = stages - 1 - rank
    v_shaped = level + (spare > rank) + np.where(back == stages - 1, last, level + (spare > back))
    return np.where(v_shape, v_shaped, looped)


def output_layers(depth: Any, shape: Any) -> Any:
    """The output projection by its parameters, in layers."""
    head = shapes.input_embedding_parameters(shape)
    return depth * head / (shapes.matmul_parameters(shape) - head)


def _layers_by_cost(pp: Any, depth: Any, shape: Any, stage: str) -> Any:
    share = cost_share(pp, depth, shape)

    def placed(ranks: Any) -> Any:
        return np.where(ranks <= 0, 0, np.minimum(depth, np.maximum(np.floor(share * ranks + 1e-9) + 1, ranks)))

    if stage == "first":
        return np.where(pp == 1, depth, placed(np.ones_like(pp)))
    if stage == "middle":
        return np.maximum(placed(2.0 * np.ones_like(pp)) - placed(np.ones_like(pp)), 1)
    before_output = np.ceil(depth / share - 1e-9) - 1  # below pp: the output projection weighs something
    return depth - placed(before_output)


def cost_share(pp: Any, depth: Any, shape: Any) -> Any:
    """A stage's fair share of the cost, in layers."""
    return (depth + output_layers(depth, shape)) / pp


def in_flight(columns: Mapping[str, Any], stage: str) -> Any:
    """Micro-batches whose activations the rank holds at its peak; a fraction where it holds chunks of some."""
    pp, micro_batches = read(columns, "pp"), read(columns, "grad_accum")
    chunks = chunks_per_rank(columns)
    rank = {"first": 0.0, "middle": 1.0, "last": pp - 1}[stage]
    interleaved = (2 * (pp - rank - 1) + (chunks - 1) * pp + 1) / chunks
    held = np.where(
        equals(columns, "pp_schedule", "interleaved_1f1b", "interleaved_zero_bubble"), interleaved, pp - rank
    )
    held = np.where(equals(columns, "pp_schedule", "zbv_zero_bubble"), pp, held)
    held = np.where(equals(columns, "pp_schedule", "dualpipev"), pp + 0.5, held)
    held = np.where(equals(columns, "pp_schedule", "gpipe", "looped_bfs"), micro_batches, held)
    return np.where(pp == 1, 1.0, np.minimum(held, micro_batches))


def bubble_fraction(columns: Mapping[str, Any]) -> Any:
    """Idle time of a pipeline over its busy time.

    (p - 1) / m for GPipe and 1F1B, (p - 1) / (v m) interleaved. Zero bubble fills a part with weight gradients: with
    forward, input-gradient and weight-gradient passes of equal length a third of 1F1B's is left in ZB-H1, and about
    none in the V schedules, of which the schedule's own start and end remain.
    """
    pp, micro_batches = read(columns, "pp"), np.maximum(read(columns, "grad_accum"), 1)
    plain = (pp - 1) / micro_batches
    looped = plain / chunks_per_rank(columns)
    found = np.where(equals(columns, "pp_schedule", *LOOPED), looped, plain)
    found = np.where(equals(columns, "pp_schedule", "interleaved_zero_bubble"), looped / 3, found)
    found = np.where(equals(columns, "pp_schedule", "zbv_zero_bubble"), plain / 12, found)
    return np.where(equals(columns, "pp_schedule", "dualpipev"), plain / 6, found)
