"""Published MFU of large training runs, to compare a measurement with what others reached on the same kind of GPU.

MFU is model FLOP/s over the dense bf16 peak. Nothing is computed from these: they are quoted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One published measurement."""

    gpu: str
    parameters: float
    gpus: int
    mfu: float
    source: str


_RECOMPUTE = "Megatron-LM, arXiv 2205.05198, table 5"
_LLAMA = "Llama 3, arXiv 2407.21783, table 4"
PUBLISHED: tuple[Published, ...] = (
    Published("a100", 22e9, 8, 0.415, _RECOMPUTE),
    Published("a100", 175e9, 64, 0.514, _RECOMPUTE),
    Published("a100", 530e9, 280, 0.560, _RECOMPUTE),
    Published("a100", 1000e9, 512, 0.563, _RECOMPUTE),
    Published("h100", 405e9, 8192, 0.43, _LLAMA),
    Published("h100", 405e9, 16384, 0.41, _LLAMA),
)


def nearest(gpu: str | None, parameters: float | None) -> Published | None:
    """The published run on that kind of GPU whose model is nearest in size; None where there is none."""
    same = [one for one in PUBLISHED if one.gpu == (gpu or "").lower()]
    if not same or not parameters:
        return None
    return min(same, key=lambda one: abs(math.log(one.parameters / parameters)))
