"""Activation recomputation: drop activations in forward, compute them again in backward.

``full`` keeps only each layer's input. ``selective`` keeps what is costly to compute, the outputs of matrix products,
attention and collectives, and computes norms, rotations and activation functions again: nearly no FLOPs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from bench_workloads.transformer.flops import ATTENTION_FORWARD

if TYPE_CHECKING:
    from torch import Tensor

    from bench_workloads.transformer.model import Block, Decoder

_SAVED = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::_grouped_mm",
    "aten::_scaled_mm",
    "aten::max",  # the scale of a matrix in 8 bits: a number, for reading it all
    *(f"aten::{name}" for name in ATTENTION_FORWARD),
    "aten::_scaled_dot_product_attention_math",
    "_c10d_functional::all_gather_into_tensor",
    "_c10d_functional::reduce_scatter_tensor",
    "_c10d_functional::all_to_all_single",
)
"""operators whose outputs are saved by ``selective``"""


def apply(part: Decoder, kind: str, layers: int = 0) -> None:
    """Wrap the forward of a stage's first ``layers`` layers, in place; 0: of every one."""
    if kind == "none":
        return
    for block in part.blocks[: layers or None]:
        if kind == "selective":
            _wrap(block, block.selective_region, context_fn=partial(create_selective_checkpoint_contexts, _policy))
        else:
            _wrap(block, "forward")
        block.recomputed = kind


def _wrap(block: Block, method: str, **options: Any) -> None:
    inner = getattr(block, method)

    def recomputed(x: Tensor) -> Tensor:
        out: Tensor = checkpoint(inner, x, use_reentrant=False, preserve_rng_state=False, **options)
        return out

    setattr(block, method, recomputed)


def _policy(_context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    saved = isinstance(operator, torch._ops.OpOverload) and operator._schema.name in _SAVED
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE
