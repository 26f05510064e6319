"""Conditions that several workloads share about the model's shape, as rules over columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sweep.contract import Rule

Columns = Mapping[str, Any]
RMSNORM = Rule("norm", lambda c: c["norm"] != "rmsnorm", "the trainer's Llama has rmsnorm, not {norm}")
GATED = Rule("gated_mlp", lambda c: c["gated_mlp"] == False, "the trainer's Llama has a gated MLP")  # noqa: E712
ROTARY = Rule(
    "learned_positions",
    lambda c: c["learned_positions"] > 0,
    "the trainer's Llama has rotary positions, no learned ones",
)
DENSE = Rule("dense", lambda c: c["num_experts"] > 0, "the adapter writes dense models only")
NO_BIASES = Rule(
    "biases",
    lambda c: (c["qkv_bias"] == True) | (c["attention_output_bias"] == True) | (c["mlp_bias"] == True),  # noqa: E712
    "the trainer's Llama has no biases",
)
NO_QK_NORM = Rule("qk_norm", lambda c: c["qk_norm"] == True, "the trainer's Llama has no norm of queries and keys")  # noqa: E712
HEAD_DIM = Rule(
    "head_dim",
    lambda c: c["head_dim"] * c["num_heads"] != c["hidden_size"],
    "the trainer's heads are hidden_size / num_heads wide, not {head_dim}",
)
KV_HEADS_BY_TP = Rule(
    "kv_heads_by_tp",
    lambda c: c["num_kv_heads"] % c["tp"] != 0,
    "{num_kv_heads} key-value heads cannot be split over tp={tp}",
)
VOCABULARY_BY_TP = Rule(
    "vocabulary_by_tp",
    lambda c: c["vocab_size"] % c["tp"] != 0,
    "a vocabulary of {vocab_size} cannot be split by tp={tp}",
)
SEQUENCE_BY_CP = Rule(
    "sequence_by_cp",
    lambda c: (c["cp"] > 1) & (c["sequence_length"] % (2 * c["cp"]) != 0),
    "a sequence of {sequence_length} cannot be cut into 2*cp = 2*{cp} equal parts",
)
WINDOW = Rule(
    "window",
    lambda c: (c["window"] > 0) & (c["window"] < c["sequence_length"]),
    "every layer of this workload sees the whole sequence, so that a sliding window ({window}) cannot be measured",
)
PLAIN_ATTENTION = Rule(
    "plain_attention",
    lambda c: (c["kv_rank"] > 0) | (c["mtp_layers"] > 0),
    "the adapter writes neither latent attention (kv_rank={kv_rank}) nor multi-token prediction ({mtp_layers} layers)",
)
PLAIN_LAYERS = (RMSNORM, GATED, ROTARY, NO_BIASES, WINDOW, PLAIN_ATTENTION)
LLAMA = (*PLAIN_LAYERS, DENSE, NO_QK_NORM, HEAD_DIM)
"""what a plain Llama excludes"""


def any_of(column: Any, values: Collection[str]) -> Any:
    """Where a column has one of the values."""
    import numpy as np

    return np.isin(np.asarray(column), list(values))


def where(name: str, wrong: Callable[[str], bool]) -> Callable[[Columns], Any]:
    """Of a rule: where the text of that column is wrong."""

    def broken(columns: Columns) -> Any:
        import numpy as np

        texts = np.asarray(columns[name])
        bad = {text: wrong(str(text)) for text in set(texts.ravel().tolist())}
        return np.vectorize(bad.__getitem__, otypes=[bool])(texts)

    return broken
