"""The output projection: logits, or the loss itself in chunks of tokens, so that the logits never exist at once.

In chunks each one's logits, their loss and both gradients are computed together in forward, and backward only scales
the gradients: the vocabulary is projected once, as without chunks (Liger Kernel, arXiv 2410.10989, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

ChunkGradient = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(logits, targets, tokens of all chunks) -> the chunk's share of the mean loss, and its gradient by the logits, in the
logits' dtype"""


Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits or hidden states, targets) -> scalar"""

MTP_LOSS_FACTOR = 0.1
"""Megatron-Core's default (mtp_loss_scaling_factor)"""


class OutputProjection(nn.Linear):
    """(…, hidden) -> logits (…, vocabulary); with targets -> their mean cross-entropy, chunk by chunk."""

    def __init__(self, hidden: int, vocabulary: int) -> None:
        super().__init__(hidden, vocabulary, bias=False)
        self.chunk_tokens = 0
        self.chunk_gradient: ChunkGradient = loss_and_gradient

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Hidden states (batch, sequence, hidden), and perhaps targets (batch, sequence); or as ``over_depths``."""
        if targets is None:
            return functional.linear(x, self.weight)
        return (over_depths(self._loss) if targets.dim() == 3 else self._loss)(x, targets)

    def _loss(self, x: Tensor, targets: Tensor) -> Tensor:
        tokens, chunk = x.flatten(0, 1), self.chunk_tokens
        return _LossInChunks.apply(tokens, self.weight, targets.flatten(), chunk, self.chunk_gradient)


def over_depths(loss: Loss) -> Loss:
    """The loss of multi-token prediction: that of the next token, and the mean of the further ones' times a factor."""

    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        """Outputs (1 + depth, batch, sequence, …), targets (batch, sequence, 1 + depth)."""
        first, *further = (loss(*pair) for pair in zip(outputs.unbind(0), targets.unbind(2), strict=True))
        return first + MTP_LOSS_FACTOR * torch.stack(further).mean()

    return weighted


def loss_and_gradient(logits: Tensor, targets: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Logits (n, vocabulary) and targets (n,) -> their share of the mean over ``tokens``, and its gradient."""
    dtype, logits = logits.dtype, logits.float()
    log_sum = logits.logsumexp(dim=-1, keepdim=True)
    wanted = targets[:, None]
    loss = (log_sum - logits.gather(1, wanted)).sum() / tokens
    gradient = (logits - log_sum).exp_()
    gradient.scatter_add_(1, wanted, torch.full_like(log_sum, -1.0))
    return loss, gradient.div_(tokens).to(dtype)


class _LossInChunks(torch.autograd.Function):
    """Mean cross-entropy of a projection. Both gradients exist once forward is done."""

    @staticmethod
    def forward(
        ctx: Any, tokens: Tensor, weight: Tensor, targets: Tensor, chunk: int, chunk_gradient: ChunkGradient
    ) -> Tensor:
        """Tokens (n, hidden), weight (vocabulary, hidden), targets (n,) -> scalar in fp32."""
        by_token, by_weight = torch.empty_like(tokens), torch.zeros_like(weight)
        loss = tokens.new_zeros((), dtype=torch.float32)
        for x, out, wanted in zip(tokens.split(chunk), by_token.split(chunk), targets.split(chunk), strict=True):
            share, gradient = chunk_gradient(x @ weight.T, wanted, len(tokens))
            loss += share
            torch.mm(gradient, weight, out=out)
            by_weight.addmm_(gradient.T, x)
        ctx.save_for_backward(by_token, by_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of tokens and weight, scaled in place: a second backward raises."""
        by_token, by_weight = ctx.saved_tensors
        return by_token.mul_(gradient), by_weight.mul_(gradient), None, None, None
