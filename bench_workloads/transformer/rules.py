"""Rules that reject invalid candidates, with reasons: one table over all candidates at once.

Columns are layout fields, shape fields, parameters, ``dtype``, ``compile``, ``sequence_length`` and ``gpus_per_node``;
each may be a number or an array. Rules that follow from a torch version carry its specifier; they are tested against
that torch, and a candidate that one of them lets through equals the single process.
"""

from __future__ import annotations

from typing import Any

from bench_workloads import decoder
from bench_workloads.decoder import Columns, any_of
from bench_workloads.transformer.model_rules import (
    DATA_RULES,
    DTYPE_RULES,
    MODEL_RULES,
    dense_somewhere,
    with_experts,
)
from bench_workloads.transformer.stages import ZERO_BUBBLE
from sweep.contract import Rule
from sweep.physics.schedules import LOOPED, V_SCHEDULES, looped_stages


def _piped(c: Columns, schedules: tuple[str, ...]) -> Any:
    return (c["pp"] > 1) & any_of(c["pp_schedule"], schedules)


def _stages(c: Columns) -> Any:
    """Pipeline stages in all."""
    looped = _piped(c, LOOPED) * (looped_stages(c["virtual_stages"]) - 1)
    return c["pp"] * (1 + looped + 1 * _piped(c, V_SCHEDULES))


def _positive(value: Any) -> Any:
    """The value, or 1 where it is 0: keeps a division defined where it does not matter."""
    return value + (value == 0)


def _uneven_rounds(c: Columns) -> Any:
    rounds = _positive(c["grad_accum"] // c["pp"])
    return _piped(c, ("interleaved_1f1b", "interleaved_zero_bubble")) & (c["grad_accum"] % rounds != 0)


def _expert_width(c: Columns) -> Any:
    """Ranks over which each expert is split."""
    return c["etp"] + (c["etp"] == 0) * c["tp"]


def _own_width(c: Columns) -> Any:
    return with_experts(c) & (_expert_width(c) != c["tp"])


def _sequence_parallel(c: Columns) -> Any:
    """By the parameter, which ``simulated`` does not have."""
    return c.get("sequence_parallel", True) == True  # noqa: E712


TENSOR_RULES = (
    decoder.KV_HEADS_BY_TP,
    decoder.VOCABULARY_BY_TP,
    Rule(
        "mlp_by_tp",
        lambda c: dense_somewhere(c) & (c["intermediate_size"] % c["tp"] != 0),
        "an MLP of width {intermediate_size} cannot be split evenly over tp={tp}",
    ),
    Rule(
        "expert_by_tp",
        lambda c: with_experts(c) & (c["moe_intermediate_size"] % _expert_width(c) != 0),
        "experts of width {moe_intermediate_size} cannot be split evenly over etp={etp}, where 0 is tp={tp}",
    ),
    Rule(
        "sequence_by_tp",
        lambda c: _sequence_parallel(c) & (c["sequence_length"] // c["cp"] % c["tp"] != 0),
        "sequence parallelism cannot split {sequence_length} / cp={cp} positions evenly over tp={tp}",
    ),
)


PIPELINE_RULES = (
    Rule(
        "layers_by_stages",
        lambda c: _stages(c) > c["num_layers"],
        "{num_layers} layers are fewer than the pipeline's stages (pp={pp}, {pp_schedule})",
    ),
    Rule(
        "micro_batches",
        lambda c: _piped(c, ("1f1b",)) & (c["grad_accum"] < c["pp"]),
        "{pp_schedule} over pp={pp} needs {pp} micro-batches at least, not {grad_accum}",
    ),
    Rule(
        "micro_batches_dualpipev",
        lambda c: _piped(c, ("dualpipev",)) & (c["grad_accum"] < 2 * c["pp"]),
        "dualpipev over pp={pp} needs a micro-batch per stage (2 * pp) at least, not {grad_accum}",
    ),
    Rule(
        "micro_batch_rounds",
        _uneven_rounds,
        "{pp_schedule} over pp={pp} cannot deal {grad_accum} micro-batches out in equal rounds",
    ),
)

EXPERT_RULES = (
    Rule(
        "ep_by_replicas",
        lambda c: (_own_width(c) == False) & (c["dp"] * c["cp"] % c["ep"] != 0),  # noqa: E712
        "ep={ep} must divide dp * cp = {dp} * {cp}, out of which it is taken",
    ),
    Rule(
        "etp_by_sequence",
        lambda c: _own_width(c) & (c["tp"] > 1) & (_sequence_parallel(c) == False),  # noqa: E712
        "etp={etp} apart from tp={tp} needs sequence_parallel: each rank then routes its own tokens",
    ),
)

SHARDING_RULES = (
    Rule(
        "nothing_to_shard",
        lambda c: (c["zero"] > 0) & (c["dp"] * c["cp"] == 1),
        "zero={zero} shards over dp * cp ranks, and there is one: the same as zero=0",
    ),
    Rule(
        "shard_size",
        lambda c: (
            (c.get("shard_size", 0) > 0)
            & (
                (c["dp"] * c["cp"] % _positive(c.get("shard_size", 0)) != 0)
                | (c["zero"] == 0)
                | (c["ep"] > 1)
                | _own_width(c)
            )
        ),
        "shard_size={shard_size} must divide dp * cp = {dp} * {cp}, and needs zero > 0, ep=1 and no etp",
    ),
)

KERNEL_RULES = (
    Rule(
        "cudnn_by_cp",
        lambda c: (c["cp"] > 1) & ((c["attention"] == "cudnn") | (c["attention"] == "efficient")),
        "gathered keys (cp > 1) have no {attention} kernel: use flash",
    ),
    Rule(
        "async_tp",
        lambda c: (
            (c["async_tp"] == True)  # noqa: E712
            & ((c["tp"] == 1) | (c["compile"] == False) | (c["sequence_parallel"] == False))  # noqa: E712
        ),
        "async_tp needs tp > 1, compile and sequence_parallel",
    ),
)

TORCH_RULES = (
    Rule("torch", lambda c: c["dp"] > 0, "the workload needs torch 2.11 or newer", torch="<2.11"),
    Rule(
        "zero3_by_zero_bubble",
        lambda c: (c["zero"] == 3) & _piped(c, ZERO_BUBBLE) & (c["reshard_after_forward"] == True),  # noqa: E712
        "{pp_schedule} loses gradients where weights are freed after forward: set reshard_after_forward to false",
        torch=">=2.11",
    ),
    Rule(
        "selective_by_zero_bubble",
        lambda c: (c["recompute"] == "selective") & _piped(c, ZERO_BUBBLE),
        "{pp_schedule} splits the backward, which selective recomputation cannot follow: use none or full, or 1f1b",
        torch=">=2.11",
    ),
    Rule(
        "compile_by_zero_bubble",
        lambda c: (c["compile"] == True) & _piped(c, ZERO_BUBBLE),  # noqa: E712
        "{pp_schedule} splits the backward, which compiled layers cannot follow: set compile to false",
        torch=">=2.11",
    ),
    Rule(
        "compile_by_recompute_by_zero3_by_tp",
        lambda c: (c["compile"] == True) & (c["recompute"] == "full") & (c["zero"] == 3) & (c["tp"] > 1),  # noqa: E712
        "torch cannot compile fully recomputed layers under tp with zero=3: set compile to false",
        torch=">=2.11",
    ),
)

ARITHMETIC_RULES: tuple[Rule, ...] = (
    *TENSOR_RULES,
    *PIPELINE_RULES,
    decoder.SEQUENCE_BY_CP,
    *EXPERT_RULES,
    *SHARDING_RULES,
)
"""rules for any trainer with the same parallelism, independent of its torch"""

RULES: tuple[Rule, ...] = (
    *MODEL_RULES,
    *DATA_RULES,
    *DTYPE_RULES,
    *KERNEL_RULES,
    *ARITHMETIC_RULES,
    *TORCH_RULES,
)
