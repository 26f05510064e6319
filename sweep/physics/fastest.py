"""The fastest layout that is predicted to fit on a number of GPUs, with the uncertainty of its speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import memory
from sweep.physics.hardware import Gpu
from sweep.physics.layouts import AXES, layouts_on
from sweep.physics.prediction import describe
from sweep.physics.profiles import MemoryProfile
from sweep.physics.shapes import ModelShape

LIKELY = 1.645
"""standard deviations on each side that hold 90 % of a normal distribution"""


@dataclass(frozen=True)
class Fastest:
    """A layout and its predicted speed."""

    layout: Mapping[str, Any]
    tokens_per_second_per_gpu: float
    low: float
    """5 % are below, of such predictions"""
    high: float
    """5 % are above"""


def fastest_layout(
    shape: ModelShape,
    gpu: Gpu,
    gpus: int,
    profile: MemoryProfile,
    *,
    gpus_per_node: int,
    sequence_length: int,
    global_batch_tokens: int,
) -> Fastest | None:
    """The best of all useful layouts by predicted tokens/s/GPU; None if none fits.

    ``global_batch_tokens``: at most; a step of fewer is counted as it is.
    """
    columns = layouts_on(
        shape,
        gpus,
        gpus_per_node=gpus_per_node,
        sequence_length=sequence_length,
        global_batch_tokens=global_batch_tokens,
    )
    fits = memory.fits(columns, gpu, profile).fits if len(columns["tp"]) else np.empty(0, dtype=bool)
    if not fits.any():
        return None
    rows = np.flatnonzero(fits)
    columns = {name: value[rows] if np.ndim(value) else value for name, value in columns.items()}
    described = describe(columns, gpu, profile)
    tokens = columns["dp"] * columns["micro_batch_size"] * columns["grad_accum"] * sequence_length
    speed = np.log(tokens / gpus) - described.log_median
    best = int(np.argmax(speed))
    low, middle, high = (float(np.exp(speed[best] + z * described.prior_sd[best])) for z in (-LIKELY, 0.0, LIKELY))
    return Fastest({name: columns[name][best].item() for name in AXES}, middle, low, high)
