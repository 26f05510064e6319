"""Synthetic tokens, made on the device: the same global batch for every layout. Those of a file: ``token_file``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator


class Source(Protocol):
    """Where a rank's tokens come from."""

    part_of_step: ClassVar[bool]
    """whether reading them is part of a training step, and is timed with it"""

    def __call__(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets (replica's sequences, local positions) of an iteration, on the device.

        Where further tokens are predicted (…, 1 + further): each position's and those after it.
        """


@dataclass(frozen=True)
class Share:
    """What one rank sees of each global batch."""

    seed: int
    vocab_size: int
    sequence_length: int
    sequences: int
    """of the global batch"""
    mine: slice
    """the sequences of this rank's data-parallel replica"""
    positions: Tensor
    """the positions of each sequence that this rank holds, on its device"""
    further: int = 0
    """tokens after the next one that are predicted too"""

    def numbers(self) -> Tensor:
        """Where each position's tokens are in a sequence: (local positions,), or (local positions, 1 + further)."""
        if not self.further:
            return self.positions
        return self.positions[:, None] + torch.arange(1 + self.further, device=self.positions.device)


@dataclass(frozen=True)
class Batches(Share):
    """Synthetic tokens, made on the device. Free: nothing of them is timed."""

    part_of_step: ClassVar[bool] = False

    def __call__(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets (replica's sequences, local positions) of an iteration."""
        device = self.positions.device
        generator = torch.Generator(device).manual_seed(self.seed * 1_000_003 + iteration)
        size = (self.sequences, self.sequence_length + 1 + self.further)
        whole = torch.randint(self.vocab_size, size, device=device, generator=generator)[self.mine]
        numbers = self.numbers()
        return whole[:, numbers], whole[:, numbers + 1]


def in_turn(source: Source, iterations: range) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of the iterations: those that are no part of a step at once, the others as they are asked for."""
    if source.part_of_step:
        return map(source, iterations)
    return iter([source(iteration) for iteration in iterations])
