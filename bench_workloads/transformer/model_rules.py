"""Rules of the models, input data and 8-bit products of the workload, by layout and kernel: part of ``rules``."""

from __future__ import annotations

from typing import Any

from bench_workloads.decoder import WINDOW, Columns, any_of, where
from sweep.contract import Rule


def with_experts(c: Columns) -> Any:
    """Where the model is a mixture of experts."""
    return c["num_experts"] > 0


def dense_somewhere(c: Columns) -> Any:
    """Where a layer of the model has a dense MLP."""
    return (c["num_experts"] == 0) | (c["dense_layers"] > 0)


def _latent(c: Columns) -> Any:
    return c["kv_rank"] > 0


MODEL_RULES = (
    Rule("norm", lambda c: c["norm"] != "rmsnorm", "the model is built with rmsnorm, not {norm}"),
    Rule("learned_positions", lambda c: c["learned_positions"] > 0, "the model has rotary positions, no learned ones"),
    Rule(
        "expert_mlp",
        lambda c: with_experts(c) & ((c["gated_mlp"] == False) | (c["mlp_bias"] == True)),  # noqa: E712
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
    WINDOW,
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
)


SYNTHETIC = "synthetic"
"""the value of ``data`` for tokens made on the device"""


DATA_RULES = (
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
)


FP8_RECIPES = ("fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_with_gw_hp")
"""the ``dtype`` that torchao's float8 training has, under its own names after fp8_"""


def _in_8_bits(c: Columns) -> Any:
    return any_of(c["dtype"], FP8_RECIPES)


def _uneven_parts(c: Columns) -> Any:
    unit = 16 * c["tp"]
    heads = (c["num_heads"] * c["head_dim"] % unit != 0) | (c["num_kv_heads"] * c["head_dim"] % unit != 0)
    return heads | (dense_somewhere(c) & (c["intermediate_size"] % unit != 0))


DTYPE_RULES = (
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
)
