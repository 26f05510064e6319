"""Rules of what models the workload builds, and with which layouts and kernels: part of ``rules``."""

from __future__ import annotations

from typing import Any

from bench_workloads.transformer.rule_parts import Columns, any_of, param, rule, with_experts


def _latent(c: Columns) -> Any:
    return _further(c, "kv_rank") > 0


def _further(c: Columns, name: str) -> Any:
    """A shape's field that is 0 for most models."""
    return c.get(name, 0)


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
        lambda c: _latent(c) & ((_further(c, "rope_head_dim") == 0) | (_further(c, "rope_head_dim") % 2 != 0)),
    ),
    rule(
        "latent_extras",
        "latent attention (kv_rank) has norms of its latents, no qk_norm, and no biases",
        lambda c: (
            _latent(c) & ((c["qk_norm"] == True) | (c["qkv_bias"] == True) | (c["attention_output_bias"] == True))  # noqa: E712
        ),
    ),
    rule(
        "window",
        "every layer of this workload sees the whole sequence, so that a sliding window ({window}) cannot be measured",
        lambda c: _further(c, "window") > 0,
    ),
    rule(
        "prediction_by_pp",
        "multi-token prediction (mtp_layers={mtp_layers}) needs the embedding, which the last stage of pp={pp} has not",
        lambda c: (_further(c, "mtp_layers") > 0) & (c["pp"] > 1),
    ),
    rule(
        "latent_kernel",
        "attention={attention} has one width of queries, keys and values, latent attention two: use auto, efficient, "
        "cudnn or math",
        lambda c: _latent(c) & any_of(param(c, "attention"), ("flash", "fa3")),
    ),
)
