"""A global batch that no layout can have: refused, with the batches near it that some layout has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sweep.errors import SweepError
from sweep.inputs.grid import Grid
from sweep.inputs.validation import amount_text
from sweep.planning.expand import Cell, chunks

_OFFERED = 3


def refuse_impossible_batch(grid: Grid, cells: Sequence[Cell]) -> None:
    """Raise SweepError where no candidate of the whole grid meets the batch equation, though some meet the other."""
    nearest: dict[tuple[int, int], set[int]] = {}
    for cell in cells:
        for columns in chunks(cell):
            whole = np.broadcast_to(columns["dp is whole"], columns.size)
            if (whole & columns["batch is near"]).any():
                return
            tokens = np.broadcast_to(columns["nearest tokens"], columns.size)
            nearest.setdefault((cell.asked_tokens, cell.gpus), set()).update(np.unique(tokens[whole]).tolist())
    if not any(nearest.values()):
        return
    asked, gpus = next(key for key, found in nearest.items() if found)
    found = set[int]().union(*(found for (tokens, _), found in nearest.items() if tokens == asked))
    near = sorted(found, key=lambda tokens: (abs(tokens - asked), tokens))
    raise SweepError(grid.mistake(_fact(grid, asked), _path(grid), _remedy(grid, asked, near, gpus)))


def _path(grid: Grid) -> tuple[str, ...]:
    return ("global_batch",) if grid.global_batch is not None else ("tokens_per_gpu",)


def _fact(grid: Grid, asked: int) -> str:
    tolerance = f" within {100 * grid.global_batch_tolerance:g} %" if grid.global_batch_tolerance else ""
    return f"no layout has a global batch of {asked:,} tokens{tolerance} at sequence_length {grid.sequence_length:,}"


def _remedy(grid: Grid, asked: int, near: Sequence[int], gpus: int) -> str:
    distance = abs(near[0] - asked) / asked
    tolerance = math.ceil(distance * 1000) / 1000
    binary = _power_of_two_near(asked, grid.sequence_length)
    batches = list(dict.fromkeys([binary, *near] if binary else near))
    if grid.global_batch is None:
        batches = [tokens // gpus for tokens in batches if tokens % gpus == 0]
    offers = ", ".join(amount_text(tokens) for tokens in batches[:_OFFERED])
    return (f"near values: {offers}; or " if offers else "") + f"global_batch_tolerance: {tolerance:g}"


def _power_of_two_near(asked: int, sequence_length: int) -> int | None:
    """What was probably meant by 1M: 1Mi. None where no power of two is within a tenth, or it is no whole batch."""
    binary: int = 2 ** round(math.log2(asked))
    return binary if abs(binary - asked) <= asked / 10 and binary % sequence_length == 0 else None
