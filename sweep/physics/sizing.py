"""How many GPUs a training run takes for how long, and where more no longer pay off.

Total compute is 6 N tokens (Kaplan et al. 2020, arXiv 2001.08361); a GPU delivers its peak times MFU. Scaling follows
Amdahl's law: a step takes ``serial + parallel / n``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sweep.physics.job import SECONDS_PER_DAY

ENOUGH_GAIN = 1.5
"""doubling the GPUs pays while it makes training this many times as fast"""


@dataclass(frozen=True)
class Size:
    """The requirements of one training run."""

    total_flops: float
    flops_per_s_per_gpu: float
    gpus: int
    days: float
    gpu_hours: float
    tokens_per_second_per_gpu: float


def size(
    parameters: float,
    tokens: float,
    *,
    flops_per_s_per_gpu: float,
    days: float | None = None,
    gpus: int | None = None,
) -> Size:
    """GPUs for a number of days, or days on a number of GPUs. Give exactly one. GPUs are rounded up.

    ``flops_per_s_per_gpu``: model FLOP/s, peak times MFU.
    """
    if (days is None) == (gpus is None):
        raise ValueError("give days or gpus, and not both")
    work = 6.0 * parameters * tokens
    if gpus is None:
        assert days is not None
        gpus = math.ceil(work / (flops_per_s_per_gpu * days * SECONDS_PER_DAY) - 1e-9)
    seconds = work / (flops_per_s_per_gpu * gpus)
    return Size(
        total_flops=work,
        flops_per_s_per_gpu=flops_per_s_per_gpu,
        gpus=gpus,
        days=seconds / SECONDS_PER_DAY,
        gpu_hours=seconds * gpus / 3600,
        tokens_per_second_per_gpu=tokens / seconds / gpus,
    )


@dataclass(frozen=True)
class Scaling:
    """Measured time per token as ``serial_s + parallel_s / gpus``, in seconds per token of the whole job."""

    serial_s: float
    parallel_s: float

    def tokens_per_second(self, gpus: float) -> float:
        """Throughput of the whole job."""
        return 1.0 / (self.serial_s + self.parallel_s / gpus)

    @property
    def serial_share(self) -> float:
        """Amdahl's s: the part of one GPU's time that more GPUs do not shorten."""
        return self.serial_s / (self.serial_s + self.parallel_s)

    @property
    def most_gpus(self) -> float:
        """GPUs from which a further doubling gains less than ``ENOUGH_GAIN``; infinite if nothing is serial."""
        if self.serial_s == 0:
            return math.inf
        # (a + b/n) / (a + b/2n) = g  =>  n = b (1 - g/2) / (a (g - 1))
        return self.parallel_s * (1 - ENOUGH_GAIN / 2) / (self.serial_s * (ENOUGH_GAIN - 1))


def fit_scaling(gpus: Sequence[float], tokens_per_second: Sequence[float]) -> Scaling:
    """Amdahl's law through measured throughputs of the best run at each number of GPUs, by relative least squares.

    Raises ValueError for fewer than two different numbers of GPUs, and for throughputs without a curve.
    """
    if len(set(gpus)) < 2:
        raise ValueError("a scaling curve needs results on two numbers of GPUs at least")
    # 1 / throughput = a + b / n, each row weighed by its throughput so that errors are relative
    x = [(t, t / n) for n, t in zip(gpus, tokens_per_second, strict=True)]
    aa, ab, bb = (sum(r[i] * r[j] for r in x) for i, j in ((0, 0), (0, 1), (1, 1)))
    ra, rb = (sum(r[i] for r in x) for i in (0, 1))
    determinant = aa * bb - ab * ab
    if not 0 < determinant < math.inf:
        raise ValueError("throughputs so far apart are on no scaling curve")
    serial, parallel = (ra * bb - rb * ab) / determinant, (aa * rb - ab * ra) / determinant
    if serial < 0:
        return Scaling(0.0, rb / bb)
    return Scaling(serial, parallel) if parallel > 0 else Scaling(ra / aa, 0.0)
