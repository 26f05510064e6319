"""Rules of 8-bit products, which torchao makes: part of ``rules``."""

from __future__ import annotations

from typing import Any

from bench_workloads.transformer.rule_parts import Columns, any_of, dense_somewhere, rule

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
        lambda c: _in_8_bits(c) & (c["tp"] > 1) & ((c.get("kv_rank", 0) > 0) | (c.get("mtp_layers", 0) > 0)),
    ),
    rule(
        "fp8_params",
        "weights are gathered in 8 bits (fp8_params) with one scale per tensor and by ZeRO only, not in {dtype} with "
        "zero={zero}",
        lambda c: (c["fp8_params"] == True) & ((c["dtype"] != "fp8_tensorwise") | (c["zero"] == 0)),  # noqa: E712
    ),
)
