"""Arrow arrays from numpy arrays and texts by their buffers: no copies, no import of pandas (pa.array does that)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.NDArray[Any], kind: Any, missing: npt.NDArray[np.bool_] | None = None) -> Any:
    """The numbers as an array of the Arrow type ``kind``, null where ``missing``."""
    if pa.types.is_boolean(kind):
        data = np.packbits(values.astype(bool), bitorder="little")
    else:
        data = np.ascontiguousarray(values, dtype=kind.to_pandas_dtype())
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)])


def texts(values: Sequence[str]) -> Any:
    """The texts as an array."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] >= 2**31:
        raise OverflowError("over 2 GiB of text in one array")
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def words(codes: npt.NDArray[Any], dictionary: Sequence[str]) -> Any:
    """Codes into a dictionary of texts."""
    return pa.DictionaryArray.from_arrays(numbers(codes, pa.int32()), texts(dictionary))


def lists(offsets: npt.NDArray[Any], values: Any) -> Any:
    """One list per pair of neighbouring offsets."""
    return pa.ListArray.from_arrays(numbers(offsets, pa.int32()), values)


def as_numpy(column: Any) -> npt.NDArray[Any]:
    """A column of numbers without nulls, or the codes of a column of words (its dictionary must be one)."""
    parts = []
    for chunk in column.chunks:
        array = chunk.indices if pa.types.is_dictionary(chunk.type) else chunk
        kind = np.dtype(array.type.to_pandas_dtype())
        data = np.frombuffer(array.buffers()[1], dtype=kind)
        parts.append(data[array.offset : array.offset + len(array)])
    return np.concatenate(parts) if parts else np.zeros(0)
