"""Why candidates are rejected: each text stored once, each candidate with the numbers of all its texts."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.contract import Rule
from sweep.errors import Mistake, SweepError
from sweep.planning.expand import FROM_BATCH, FROM_DP, Columns, Indices

Mask = npt.NDArray[np.bool_]


class Numbered(dict[str, int]):
    """Text -> its number: the next one for a text that is not there yet."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def broken_by(rule: Rule, columns: Columns) -> Mask:
    """The candidates that the rule rejects, of those for which all columns it reads are defined.

    Raises ValueError if a constraint is not a condition, SweepError if a workload's rule fails.
    """
    columns.read.clear()
    try:
        broken = np.asarray(rule.broken(columns))
    except (KeyError, TypeError) as error:
        raise SweepError(Mistake(f"the workload's rule {rule.name!r} cannot be evaluated: {error!r}")) from error
    read = set(columns.read)
    mask: Mask = np.broadcast_to(broken.astype(bool), columns.size)
    if read & FROM_DP:
        mask = mask & columns["dp is whole"]
    if read & FROM_BATCH:
        mask = mask & columns["batch is near"]
    return mask


def reason_numbers(rule: Rule, columns: Columns, rows: Indices, numbered: Numbered) -> Indices:
    """For each row the number of its reason: the rule's name, and the text with the candidate's own values."""
    names = dict.fromkeys(name for _, name, _, _ in string.Formatter().parse(rule.reason) if name)
    kinds, places = combinations(columns, names, rows)
    head = rule.name.replace(":", "")
    numbers = [numbered[f"{head}: {rule.reason.format(**kind)}"] for kind in kinds]
    return np.asarray(numbers, dtype=np.int64)[places]


def listed(found: Sequence[tuple[Indices, Indices]], size: int) -> tuple[Indices, Indices]:
    """Pairs of (rows, numbers) as one list per row: (offsets of size + 1, numbers)."""
    counts = np.zeros(size, dtype=np.int64)
    for rows, _ in found:
        counts[rows] += 1
    offsets = np.concatenate([[0], np.cumsum(counts)])
    numbers = np.empty(offsets[-1], dtype=np.int64)
    filled = offsets[:-1].copy()
    for rows, codes in found:
        numbers[filled[rows]] = codes
        filled[rows] += 1
    return offsets, numbers


def _coded(columns: Columns, name: str, rows: Indices) -> tuple[Any, list[Any]]:
    """(codes, values): the column's values at the rows as indices into a list of values."""
    if known := columns.coded(name):
        values, codes = known
        return codes[rows], list(values)
    column = columns[name]
    if np.ndim(column) == 0:
        return None, [column.item() if isinstance(column, np.generic | np.ndarray) else column]
    if column.dtype == object:
        texts = Numbered()
        return np.asarray([texts[str(value)] for value in column[rows]], dtype=np.int64), list(texts)
    kinds, codes = distinct(column[rows])
    return codes, kinds.tolist()


def combinations(columns: Columns, names: Iterable[str], rows: Indices) -> tuple[list[dict[str, Any]], Indices]:
    """(every combination of the columns' values that occurs at the rows, the place of each row's among them)."""
    coded = {name: _coded(columns, name, rows) for name in names}
    combined = np.zeros(len(rows), dtype=np.int64)
    for codes, values in coded.values():
        combined = combined * len(values) + (0 if codes is None else codes)
    kinds, places = distinct(combined)
    found = []
    for left in kinds.tolist():
        chosen = {}
        for name, (_, values) in reversed(coded.items()):
            left, index = divmod(left, len(values))  # noqa: PLW2901
            chosen[name] = values[index]
        found.append(chosen)
    return found, places


def distinct(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Indices]:
    """(each value once, ascending; the place of every row's value among them).

    As ``numpy.unique`` with ``return_inverse``, without its sorting where values are small natural numbers.
    """
    if len(values) and values.dtype.kind == "i" and values.min() >= 0 and values.max() < 4 * len(values):
        occurs = np.zeros(int(values.max()) + 1, dtype=bool)
        occurs[values] = True
        return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[values]
    kinds, places = np.unique(values, return_inverse=True)
    return kinds, places.reshape(values.shape)
