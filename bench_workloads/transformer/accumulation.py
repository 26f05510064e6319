"""Gradient accumulation without a pipeline: micro-batch after micro-batch, reduced only when needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_workloads.transformer.model import Decoder


class Sync(Protocol):
    """The hook by which data parallelism follows the micro-batches."""

    def before_micro_batch(self, *, last: bool) -> None:
        """Called before the forward of each one."""


class AccumulationStep:
    """Forward and backward of one global step, micro-batch by micro-batch."""

    def __init__(
        self, model: Decoder, *, sync: Sync, micro_batches: int, loss: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        self._model = model
        self._sync = sync
        self._micro_batches = micro_batches
        self._loss = loss

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor | None:
        """Tokens and targets (local batch, local sequence) -> their mean loss."""
        losses = []
        pairs = list(zip(tokens.chunk(self._micro_batches), targets.chunk(self._micro_batches), strict=True))
        for number, (inputs, wanted) in enumerate(pairs, start=1):
            self._sync.before_micro_batch(last=number == len(pairs))
            loss = self._loss(self._model(inputs), wanted)
            (loss / len(pairs)).backward()
            losses.append(loss.detach())
        return torch.stack(losses).mean()
