"""How similar two layouts are: the covariance of what the formulas of step time and memory do not know about them.

Effects of each axis alone, of each pair of axes, and of all at once (Duvenaud et al. 2011, "Additive Gaussian
processes"). An axis value that was never measured shares little with those that were: its effect stays uncertain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweep.search.gaussian import Floats, Ints

LENGTH = 2.0
"""doublings of an axis (tp, pp, micro-batch, …) over which correlation falls to 1/e"""
CATEGORIES_APART = 2.0
"""lengths between any two categories (schedules, kernels, …)"""
_DERIVED = ("dp", "gpus_per_node")
"""follow from the others"""
ORDERS = 3


class LayoutKernel:
    """Covariances of candidates by the order of the effect: one axis, two axes, all axes."""

    def __init__(self, axes: Mapping[str, Floats], size: int) -> None:
        """``axes``: name -> position of each candidate, in doublings; or its category, an integer."""
        self._codes, self._tables = [], []
        for position in axes.values():
            values, codes = np.unique(position, return_inverse=True)
            apart: Any = np.abs(values[:, None] - values[None, :]) / LENGTH
            if position.dtype.kind == "i":
                apart = CATEGORIES_APART * (apart > 0)
            self._codes.append(codes.ravel().astype(np.int64))
            self._tables.append(np.exp(-apart))
        self.size = size
        self.variances = self._orders([np.ones(1)] * len(self._codes), (1,))[:, 0]
        """prior variance of a candidate by order, before scales"""
        having = [codes[:, None] == np.arange(len(t)) for codes, t in zip(self._codes, self._tables, strict=True)]
        self._values = np.concatenate([np.zeros((size, 0)), *having], axis=1).astype(np.float64)
        """(candidates, values): 1 where a candidate has it, for every value of every axis"""

    def columns(self, indices: Ints, rows: Ints) -> Floats:
        """(orders, indices, rows): of some candidates with others. Of 5,000 candidates all are 600 MB."""
        pairs = zip(self._tables, self._codes, strict=True)
        parts = [table.take(codes[indices], 0).take(codes[rows], 1) for table, codes in pairs]
        return self._orders(parts, (len(indices), len(rows)))

    def untested(self, measured: Ints, rows: Ints) -> Floats:
        """(rows, values): 1 where one has a value of an axis that none of the measured ones has."""
        found: Floats = self._values[rows][:, ~self._values[measured].any(axis=0)]
        return found

    def _orders(self, parts: Sequence[Floats], shape: tuple[int, ...]) -> Floats:
        total, squares, product = np.zeros(shape), np.zeros(shape), np.ones(shape)
        for part in parts:
            total += part
            squares += part**2
            product *= part
        return np.stack([total, (total**2 - squares) / 2, product])


def axes_of(columns: Mapping[str, Any], kinds: Sequence[tuple[str, str, str, str]]) -> dict[str, Floats]:
    """Each axis that varies among the candidates: positions in doublings, or integers for categories."""
    from sweep.physics.shapes import ModelShape

    size = len(kinds)
    left = {*_DERIVED, *ModelShape.__dataclass_fields__}
    given = {name: value for name, value in columns.items() if name not in left}
    if "num_layers" in columns:  # a model's shape is one axis: by its size
        given["model"] = np.asarray(columns["num_layers"]) * np.asarray(columns["hidden_size"], dtype=np.float64) ** 2
    found = {}
    for name, value in {**given, **_parameters(kinds)}.items():
        values = np.broadcast_to(np.asarray(value), size)
        position = _position(values)
        if len(np.unique(position)) > 1:
            found[name] = position
    if "tp" in columns and "gpus_per_node" in columns:
        across = np.broadcast_to(np.asarray(columns["tp"]) > np.asarray(columns["gpus_per_node"]), size)
        if across.any() and not across.all():
            found["tp across nodes"] = LENGTH * across
    return found


def _parameters(kinds: Sequence[tuple[str, str, str, str]]) -> dict[str, Any]:
    """The workload, and every parameter and environment variable of a run."""
    found: dict[str, Any] = {"workload": np.array([kind[0] for kind in kinds])}
    for place, prefix in ((2, "params"), (3, "env")):
        texts = [kind[place] for kind in kinds]
        read = {text: json.loads(text) for text in dict.fromkeys(texts)}
        for key in dict.fromkeys(key for values in read.values() for key in values):
            found[f"{prefix}.{key}"] = np.array([json.dumps(read[text].get(key)) for text in texts])
    return found


def _position(values: Any) -> Any:
    if values.dtype.kind in "iuf" and (values > 0).all():
        return np.log2(values.astype(np.float64))
    if values.dtype.kind in "iuf":
        return LENGTH * values.astype(np.float64)  # ZeRO stages
    return np.unique(values.astype(str), return_inverse=True)[1].ravel().astype(np.int64)
