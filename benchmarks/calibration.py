"""Calibration of predictions by measurements: a local correction, which fades far from any of them.

A Gaussian process over how a layout is shaped, on the logarithm of measured / predicted (Rasmussen and Williams 2006,
algorithm 2.1). Its mean is zero: far from all measurements the prediction of the physics model is unchanged.
One definition serves peaks and step times. No sweep uses it (a sweep learns by ``sweep.search.step_time_model``): it
measures how much of the memory model's error a correction of this kind could take away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import pipeline
from sweep.physics.columns import equals, read

MOST_ANCHORS = 512
"""measurements that a calibration uses: the latest"""
_LENGTH = 1.5
"""length scale, in doublings (of tp, pp, …)"""
_SPREAD = 0.2
"""error of predictions before any measurement (standard deviation of the logarithm)"""
_NOISE = 0.1
"""difference between similar runs"""


@dataclass(frozen=True)
class Calibration:
    """Correction factors fitted to measured runs."""

    anchors: Any
    """features of the measured runs, (n, features)"""
    weights: Any
    """(n,)"""
    inverse: Any
    """inverse of the measured runs' covariance, (n, n)"""

    def scale(self, columns: Mapping[str, Any]) -> Any:
        """Factor of the prediction for each candidate; 1 without similar measurements."""
        return np.exp(_covariance(features(columns), self.anchors) @ self.weights)

    def spread(self, columns: Mapping[str, Any]) -> Any:
        """Standard deviation of the corrected prediction's logarithm, for each candidate."""
        cross = _covariance(features(columns), self.anchors)
        known = np.einsum("ij,jk,ik->i", cross, self.inverse, cross)
        return np.sqrt(np.maximum(_SPREAD**2 - known, 0) + _NOISE**2)


def calibrate(columns: Mapping[str, Any], predicted: Any, measured: Any) -> Calibration:
    """A calibration from runs: columns of their layouts and shapes, predictions and measurements in one unit.

    Rows without a positive measurement are left out.
    """
    predicted, measured = np.atleast_1d(predicted).astype(float), np.atleast_1d(measured).astype(float)
    good = np.flatnonzero(np.isfinite(measured) & (measured > 0) & (predicted > 0))[-MOST_ANCHORS:]
    anchors = features(columns)[good] if len(good) else np.zeros((0, features(columns).shape[1]))
    residual = np.log(measured[good] / predicted[good])
    inverse = np.linalg.inv(_covariance(anchors, anchors) + _NOISE**2 * np.eye(len(good)))
    return Calibration(anchors, inverse @ residual, inverse)


def features(columns: Mapping[str, Any]) -> Any:
    """Features of each candidate, (n, features): widths and sizes in doublings, kinds as steps of two."""
    pp, tp = read(columns, "pp"), read(columns, "tp")
    gpus = read(columns, "dp") * tp * pp * read(columns, "cp")
    per_rank = read(columns, "micro_batch_size") * read(columns, "sequence_length") / read(columns, "cp")
    found = [
        np.log2(tp),
        np.log2(pp),
        np.log2(gpus),
        np.log2(read(columns, "cp")),
        np.log2(read(columns, "ep")),
        np.log2(per_rank * read(columns, "hidden_size")),
        0.5 * np.log2(read(columns, "num_layers")),
        np.log2(read(columns, "grad_accum")),
        np.log2(np.maximum(pipeline.in_flight(columns, "first"), 1)),
        read(columns, "zero"),
        2.0 * (tp > read(columns, "gpus_per_node")),
        2.0 * (pp == 1),
        2.0 * equals(columns, "recompute", "full"),
        2.0 * equals(columns, "recompute", "selective"),
    ]
    return np.stack([np.atleast_1d(column) for column in np.broadcast_arrays(*found)], axis=1)


def _covariance(left: Any, right: Any) -> Any:
    square = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    return _SPREAD**2 * np.exp(-np.maximum(square, 0) / (2 * _LENGTH**2))
