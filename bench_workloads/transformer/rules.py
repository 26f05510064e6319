"""Rules that reject invalid candidates, with reasons: one table over all candidates at once.

Columns are layout fields, shape fields, parameters, ``dtype``, ``compile``, ``sequence_length`` and ``gpus_per_node``;
each may be a number or an array. Rules that follow from a torch version carry its specifier; they are tested against
that torch, and a candidate that one of them lets through equals the single process.
"""

from __future__ import annotations

from typing import Any

from bench_workloads import decoder
from bench_workloads.decoder import Columns, any_of, where
from bench_workloads.transformer.stages import ZERO_BUBBLE
from sweep.contract import Rule
from sweep.physics.schedules import LOOPED, V_SCHEDULES, looped_stages

SYNTHETIC = "synthetic"
"""the value of ``data`` for tokens made on the device"""
FP8_RECIPES = ("fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp")
"""the ``dtype`` that torchao's float8 training has, under its own names after fp8_"""


def _with_experts(c: Columns) -> Any:
    """Where the model is a mixture of experts."""
    return c["num_experts"] > 0


def _dense_somewhere(c: Columns) -> Any:
    """Where a layer of the model has a dense MLP."""
    return (c["num_experts"] == 0) | (c["dense_layers"] > 0)


def _latent(c: Columns) -> Any:
    return c["kv_rank"] > 0


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
    return _with_experts(c) & (_expert_width(c) != c["tp"])


def _sequence_parallel(c: Columns) -> Any:
    """By the parameter, which ``simulated`` does not have."""
    return c.get("sequence_parallel", True) == True  # noqa: E712


def _in_8_bits(c: Columns) -> Any:
    return any_of(c["dtype"], FP8_RECIPES)


def _uneven_parts(c: Columns) -> Any:
    unit = 16 * c["tp"]
    heads = (c["num_heads"] * c["head_dim"] % unit != 0) | (c["num_kv_heads"] * c["head_dim"] % unit != 0)
    return heads | (_dense_somewhere(c) & (c["intermediate_size"] % unit != 0))


ARITHMETIC_RULES: tuple[Rule, ...] = (
    decoder.KV_HEADS_BY_TP,
    decoder.VOCABULARY_BY_TP,
    Rule(
        "mlp_by_tp",
        lambda c: _dense_somewhere(c) & (c["intermediate_size"] % c["tp"] != 0),
        "an MLP of width {intermediate_size} cannot be split evenly over tp={tp}",
    ),
    Rule(
        "expert_by_tp",
        lambda c: _with_experts(c) & (c["moe_intermediate_size"] % _expert_width(c) != 0),
        "experts of width {moe_intermediate_size} cannot be split evenly over etp={etp}, where 0 is tp={tp}",
    ),
    Rule(
        "sequence_by_tp",
        lambda c: _sequence_parallel(c) & (c["sequence_length"] // c["cp"] % c["tp"] != 0),
        "sequence parallelism cannot split {sequence_length} / cp={cp} positions evenly over tp={tp}",
    ),
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
    decoder.SEQUENCE_BY_CP,
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
"""rules for any trainer with the same parallelism, independent of its torch"""

RULES: tuple[Rule, ...] = (
    Rule("norm", lambda c: c["norm"] != "rmsnorm", "the model is built with rmsnorm, not {norm}"),
    Rule("learned_positions", lambda c: c["learned_positions"] > 0, "the model has rotary positions, no learned ones"),
    Rule(
        "expert_mlp",
        lambda c: _with_experts(c) & ((c["gated_mlp"] == False) | (c["mlp_bias"] == True)),  # noqa: E712
        "experts are gated and have no biases",
    ),
    Rule(
        "head_dim",
        lambda c: (_latent(c) == False) & (c["head_dim"] % 2 != 0),  # noqa: E712
        "rotary positions need an even head_dim, not {head_dim}",
    ),
    Rule(
        "rope_head_dim",
        lambda c: _latent(c) & ((c["rope_head_dim"] == 0) | (c["rope_head_dim"] % 2 != 0)),
        "latent attention (kv_rank) needs rotary positions of an even width: rope_head_dim is {rope_head_dim}",
    ),
    Rule(
        "latent_extras",
        lambda c: (
            _latent(c) & ((c["qk_norm"] == True) | (c["qkv_bias"] == True) | (c["attention_output_bias"] == True))  # noqa: E712
        ),
        "latent attention (kv_rank) has norms of its latents, no qk_norm, and no biases",
    ),
    decoder.WINDOW,
    Rule(
        "prediction_by_pp",
        lambda c: (c["mtp_layers"] > 0) & (c["pp"] > 1),
        "multi-token prediction (mtp_layers={mtp_layers}) needs the embedding, which the last stage of pp={pp} has not",
    ),
    Rule(
        "latent_kernel",
        lambda c: _latent(c) & any_of(c["attention"], ("flash", "fa3")),
        "attention={attention} has one width of queries, keys and values, latent attention two: use auto, efficient, "
        "cudnn or math",
    ),
    Rule(
        "data_path",
        where("data", lambda text: text != SYNTHETIC and not text.startswith("/")),
        "data={data} must be synthetic or an absolute path, which every node sees",
    ),
    Rule("data_workers", lambda c: c["data_workers"] < 0, "data_workers must be 0 or more, not {data_workers}"),
    Rule(
        "synthetic_data",
        lambda c: (c["data"] == SYNTHETIC) & (c["data_workers"] > 0),
        "synthetic tokens are made on the device: data_workers need data: a file",
    ),
    Rule(
        "fp8",
        lambda c: any_of(c["dtype"], ("fp8", "mxfp8")),
        "dtype={dtype}: fp8 alone names no recipe, and torchao's mxfp8 is a prototype; use fp8_tensorwise, fp8_rowwise "
        "or fp8_rowwise_with_gw_hp",
    ),
    Rule(
        "fp8_tokens",
        lambda c: _in_8_bits(c) & (c["micro_batch_size"] * (c["sequence_length"] // c["cp"]) % 16 != 0),
        "8-bit products need a multiple of 16 tokens, not micro_batch_size={micro_batch_size} * {sequence_length} / "
        "cp={cp}",
    ),
    Rule(
        "fp8_widths",
        lambda c: _in_8_bits(c) & (c["tp"] > 1) & _uneven_parts(c),
        "8-bit products need widths that are multiples of 16, also of a rank's part: MLP {intermediate_size}, "
        "{num_heads} and {num_kv_heads} heads of {head_dim}, over tp={tp}",
    ),
    Rule(
        "fp8_by_tp",
        lambda c: _in_8_bits(c) & (c["tp"] > 1) & (_latent(c) | (c["mtp_layers"] > 0)),
        "latent attention and multi-token prediction have products of their own under tp={tp}, which are not in 8 bits",
    ),
    Rule(
        "fp8_params",
        lambda c: (c["fp8_params"] == True) & ((c["dtype"] != "fp8_tensorwise") | (c["zero"] == 0)),  # noqa: E712
        "weights are gathered in 8 bits (fp8_params) with one scale per tensor and by ZeRO only, not in {dtype} with "
        "zero={zero}",
    ),
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
    *ARITHMETIC_RULES,
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
