"""Columns of candidates as the formulas read them: an absent name has its default."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from sweep.contract import FORMATS, Layout

_PLAIN: Mapping[str, Any] = {
    **vars(Layout()),
    "dtype": "bf16",
    "compile": False,
    "gpus_per_node": 8,
    "num_layers": 1,
    "num_experts": 0,
    "recompute_share": 1.0,
    "SWEEP_PLACEMENT": "packed",
}
"""default values: of a layout, and of what else may be absent"""
RECIPE = "dtype as stated"
"""the column ``dtype`` with the recipes of FORMATS, which ``read`` of ``dtype`` replaces by their formats"""


class Numbers(Mapping[str, Any]):
    """Columns, or some ``rows`` of them, with cached conversions and derived values: formulas read them many times."""

    def __init__(self, columns: Mapping[str, Any], rows: Any = ...) -> None:
        self._columns, self._rows = columns, rows
        self._known: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Numbers:
        """The columns themselves if they are cached already."""
        return columns if isinstance(columns, Numbers) else cls(columns)

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value under the key, computed on first use."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Any:
        column = self._columns[name]
        return column if np.ndim(column) == 0 else np.asarray(column)[self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def read(columns: Mapping[str, Any], name: str) -> Any:
    """A column as a number or an array; numbers as floats, so that no product overflows."""
    if isinstance(columns, Numbers):
        return columns.once(name, lambda: _number(columns, name))
    return _number(columns, name)


def _number(columns: Mapping[str, Any], name: str) -> Any:
    if name == RECIPE:
        return np.asarray(columns.get("dtype", _PLAIN["dtype"]))
    try:
        value = columns[name]
    except KeyError:
        value = _PLAIN[name]
    array = np.asarray(value)
    if name == "dtype":
        for recipe in [recipe for recipe in FORMATS if np.any(array == recipe)]:
            array = np.where(array == recipe, FORMATS[recipe], array)
    return array.astype(np.float64) if array.dtype.kind in "iub" else array


def equals(columns: Mapping[str, Any], name: str, *values: str) -> Any:
    """True where the column is one of the texts."""
    if isinstance(columns, Numbers):
        return columns.once((name, values), lambda: _equals(columns, name, values))
    return _equals(columns, name, values)


def _equals(columns: Mapping[str, Any], name: str, values: tuple[str, ...]) -> Any:
    column = read(columns, name)
    if column.ndim == 0:
        return np.asarray(str(column) in values)
    found = np.zeros(column.shape, dtype=bool)
    for value in values:
        found |= column == value
    return found


def mentions(columns: Mapping[str, Any], name: str, word: str) -> Any:
    """1.0 where the column's text, words with commas, has the word; else 0.0."""
    column = read(columns, name)
    return 1.0 * equals(columns, name, *(text for text in words_in(column) if word in text.split(",")))


def words_in(column: Any) -> list[str]:
    """The texts that occur in a column."""
    return [str(column)] if column.ndim == 0 else [str(word) for word in np.unique(column)]


def element_bytes(columns: Mapping[str, Any]) -> Any:
    """Bytes of one element of weights and activations while computing."""
    return np.where(equals(columns, "dtype", "fp32", "tf32"), 4.0, 2.0)


def matrix_input_bytes(columns: Mapping[str, Any], *, rounded: bool = True) -> Any:
    """Bytes of one element stored as a matrix's input: in 4 bits with a scale per 16; in 8 bits, if ``rounded``."""
    wide = np.where(equals(columns, "dtype", "fp8") & rounded, 1.0, element_bytes(columns))
    return np.where(equals(columns, "dtype", "fp4"), 0.5 + 1 / 16, wide)


def recomputed_share(columns: Mapping[str, Any], stages: Any = 1.0) -> Any:
    """Of a rank's layers, those that are recomputed where ``recompute`` states it. ``stages``: that the rank holds."""
    layers, share = read(columns, "recompute_layers"), read(columns, "recompute_share")
    each = layers * stages * read(columns, "pp") / read(columns, "num_layers")
    return np.where(layers > 0, np.minimum(each, 1.0), share)


def expert_width(columns: Mapping[str, Any]) -> Any:
    """Ranks that share one routed expert: the column ``etp``, or where it is 0 tp."""
    width = read(columns, "etp")
    return np.where(width > 0, width, read(columns, "tp"))


def expert_split(columns: Mapping[str, Any]) -> Any:
    """Over how many ranks one layer's routed experts are split: ep * etp."""
    return read(columns, "ep") * expert_width(columns)


def local_tokens(columns: Mapping[str, Any]) -> Any:
    """Tokens of one micro-batch on one context-parallel rank."""
    return read(columns, "micro_batch_size") * read(columns, "sequence_length") / read(columns, "cp")
