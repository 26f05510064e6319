"""Synthetic tokens, made on the device: the same global batch for every layout."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batches:
    """The share of each global batch that one rank sees."""

    seed: int
    vocab_size: int
    sequence_length: int
    sequences: int
    """of the global batch"""
    mine: slice
    """the sequences of this rank's data-parallel replica"""
    positions: Tensor
    """the positions of each sequence that this rank holds"""

    def __call__(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets (replica's sequences, local positions) of an iteration."""
        device = self.positions.device
        generator = torch.Generator(device).manual_seed(self.seed * 1_000_003 + iteration)
        size = (self.sequences, self.sequence_length + 1)
        whole = torch.randint(self.vocab_size, size, device=device, generator=generator)[self.mine]
        return whole[:, self.positions], whole[:, self.positions + 1]
