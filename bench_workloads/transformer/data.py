"""Synthetic tokens, made on the device: the same global batch for every layout.

Tokens of a real file: memory-mapped, read by worker processes, copied from pinned memory. A part of each step.

The file holds numbers of tokens and nothing else (``.bin`` of nanoGPT, of Megatron-LM and others). Each global batch is
sequences of it at random, by seed and iteration alone: the same for every layout.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

if TYPE_CHECKING:
    from bench_workloads.transformer.settings import Settings


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
    """whether reading them is part of a training step, and is timed with it"""

    def __call__(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Tokens and targets (replica's sequences, local positions) of an iteration, on the device.

        Where further tokens are predicted (…, 1 + further): each position's and those after it.
        """
        device = self.positions.device
        generator = torch.Generator(device).manual_seed(self.seed * 1_000_003 + iteration)
        size = (self.sequences, self.sequence_length + 1 + self.further)
        whole = torch.randint(self.vocab_size, size, device=device, generator=generator)[self.mine]
        numbers = self.numbers()
        return whole[:, numbers], whole[:, numbers + 1]


def in_turn(source: Batches | FileBatches, iterations: range) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of the iterations: those that are no part of a step at once, the others as they are asked for."""
    if source.part_of_step:
        return map(source, iterations)
    return iter([source(iteration) for iteration in iterations])


class TokenFileError(ValueError):
    """The file cannot feed this model."""


class TokenFile(Dataset[Tensor]):
    """A rank's share of each iteration's batch: (2, replica's sequences, local positions) of int32, tokens and targets.

    The file is mapped by the process that reads it: each worker has its own mapping.
    """

    def __init__(self, path: Path, dtype: str, share: Share) -> None:
        # No tensor of a GPU goes to the workers: with it each would open a CUDA context.
        share = replace(share, positions=share.positions.cpu())
        self._path, self._dtype, self._share = path, np.dtype(dtype), share
        self._positions = share.numbers().numpy()
        self._tokens: np.ndarray | None = None
        size = path.stat().st_size
        self.sequences = (size // self._dtype.itemsize - 1 - share.further) // share.sequence_length
        """in the file"""
        if size % self._dtype.itemsize or self.sequences < 1:
            least = share.sequence_length + 1 + share.further
            raise TokenFileError(f"{path}: {size:,} bytes are no {least:,} or more tokens of {dtype} (data_dtype)")

    def __getitem__(self, iteration: int) -> Tensor:
        share = self._share
        if self._tokens is None:
            self._tokens = np.memmap(self._path, dtype=self._dtype, mode="r")
        chosen = np.random.default_rng([share.seed, iteration]).integers(self.sequences, size=share.sequences)
        first = chosen[share.mine] * share.sequence_length
        starts = np.add.outer(first, self._positions)
        both = np.stack((self._tokens[starts], self._tokens[starts + 1]))
        wrong = both[(both < 0) | (both >= share.vocab_size)]
        if wrong.size:
            raise TokenFileError(
                f"{self._path}: token {wrong[0]}, but the model's vocabulary has {share.vocab_size:,} (data_dtype: "
                f"{self._dtype})"
            )
        return torch.from_numpy(both.astype(np.int32))


class FileBatches:
    """Batches of the file that the parameters name, in rising order. What a step waits for its own is part of the step.

    Raises TokenFileError and OSError.
    """

    part_of_step: ClassVar[bool] = True

    def __init__(self, settings: Settings, share: Share) -> None:
        self._file = TokenFile(Path(settings.data), settings.data_dtype, share)
        self._device, self._settings = share.positions.device, settings
        self._next = 0
        self._loader: Iterator[Tensor] = iter(())

    def __call__(self, iteration: int) -> tuple[Tensor, Tensor]:
        """As ``Batches``. Another order than a rising one starts to read from there."""
        if iteration != self._next or not iteration:
            loader = DataLoader(  # workers read up to two batches each ahead (torch's default)
                self._file,
                batch_size=None,
                sampler=itertools.count(iteration),
                num_workers=self._settings.data_workers,
                pin_memory=self._device.type == "cuda",
            )
            self._loader = iter(loader)
        self._next = iteration + 1
        both = next(self._loader).to(self._device, non_blocking=True).long()
        return both[0], both[1]
