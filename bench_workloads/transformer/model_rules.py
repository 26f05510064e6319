"""Rules of the models, input data and 8-bit products of the workload, by layout and kernel: part of ``rules``."""

from __future__ import annotations

from typing import Any

from bench_workloads.decoder import WINDOW, where
from bench_workloads.transformer.rule_parts import Columns, any_of, dense_somewhere, param, rule, with_experts


def _latent(c: Columns) -> Any:
    return c["kv_rank"] > 0


MODEL_RULES = (
    rule("norm", "the model is built with rmsnorm, not {norm}", lambda c: c["norm"] != "rmsnorm"),
    rule("learned_positions", "the model has rotary positions, no learned ones", lambda c: c["learned_positions"] > 0),
    rule(
        "expert_mlp",
        "experts are gated and have no biases",
        lambda c: with_experts(c) & ((c["gated_mlp"] == False) | (c["mlp_bias"] == True)),  # noqa: E712
    ),
    rule(
        "head_dim",
        "rotary positions need an even head_dim, not {head_dim}",
        lambda c: (_latent(c) == False) & (c["head_dim"] % 2 != 0),  # noqa: E712
    ),
    rule(
        "rope_head_dim",
        "latent attention (kv_rank) needs rotary positions of an even width: rope_head_dim is {rope_head_dim}",
        lambda c: _latent(c) & ((c["rope_head_dim"] == 0) | (c["rope_head_dim"] % 2 != 0)),
    ),
    rule(
        "latent_extras",
        "latent attention (kv_rank) has norms of its latents, no qk_norm, and no biases",
        lambda c: (
            _latent(c) & ((c["qk_norm"] == True) | (c["qkv_bias"] == True) | (c["attention_output_bias"] == True))  # noqa: E712
        ),
    ),
    WINDOW,
    rule(
        "prediction_by_pp",
        "multi-token prediction (mtp_layers={mtp_layers}) needs the embedding, which the last stage of pp={pp} has not",
        lambda c: (c["mtp_layers"] > 0) & (c["pp"] > 1),
    ),
    rule(
        "latent_kernel",
        "attention={attention} has one width of queries, keys and values, latent attention two: use auto, efficient, "
        "cudnn or math",
        lambda c: _latent(c) & any_of(param(c, "attention"), ("flash", "fa3")),
    ),
)


SYNTHETIC = "synthetic"
"""the value of ``data`` for tokens made on the device"""


DATA_RULES = (
    rule(
        "data_path",
        "data={data} must be synthetic or an absolute path, which every node sees",
        where("data", lambda text: text != SYNTHETIC and not text.startswith("/")),
    ),
    rule(
        "data_workers",
        "data_workers must be 0 or more, not {data_workers}",
        lambda c: param(c, "data_workers") < 0,
    ),
    rule(
        "synthetic_data",
        "synthetic tokens are made on the device: data_workers need data: a file",
        lambda c: (param(c, "data") == SYNTHETIC) & (param(c, "data_workers") > 0),
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
    rule(
        "fp8",
        "dtype={dtype}: fp8 alone names no recipe, and torchao's mxfp8 is a prototype; use fp8_tensorwise, fp8_rowwise "
        "or fp8_rowwise_with_gw_hp",
        lambda c: any_of(c["dtype"], ("fp8", "mxfp8")),
    ),
    rule(
        "fp8_tokens",
        "8-bit products need a multiple of 16 tokens, not micro_batch_size={micro_batch_size} * {sequence_length} / "
        "cp={cp}",
        lambda c: _in_8_bits(c) & (c["micro_batch_size"] * (c["sequence_length"] // c["cp"]) % 16 != 0),
    ),
    rule(
        "fp8_widths",
        "8-bit products need widths that are multiples of 16, also of a rank's part: MLP {intermediate_size}, "
        "{num_heads} and {num_kv_heads} heads of {head_dim}, over tp={tp}",
        lambda c: _in_8_bits(c) & (c["tp"] > 1) & _uneven_parts(c),
    ),
    rule(
        "fp8_by_tp",
        "latent attention and multi-token prediction have products of their own under tp={tp}, which are not in 8 bits",
        lambda c: _in_8_bits(c) & (c["tp"] > 1) & (_latent(c) | (c["mtp_layers"] > 0)),
    ),
    rule(
        "fp8_params",
        "weights are gathered in 8 bits (fp8_params) with one scale per tensor and by ZeRO only, not in {dtype} with "
        "zero={zero}",
        lambda c: (c["fp8_params"] == True) & ((c["dtype"] != "fp8_tensorwise") | (c["zero"] == 0)),  # noqa: E712
    ),
)
