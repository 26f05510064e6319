"""Data of each kind of GPU. Peaks are dense (no structured sparsity), per GPU, from the makers' data sheets."""

from __future__ import annotations

import csv
import itertools
import pkgutil
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.contract import FORMATS
from sweep.physics import constants
from sweep.physics.measured import Fabric, MeasuredRates

GB = 10**9
GIB = float(2**30)
TERA = 10**12


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One kind of accelerator. Unknown is None, never 0."""

    name: str
    peaks_flops: Mapping[str, float] = field(default_factory=dict)
    """dtype -> FLOP/s of dense matrix products; a dtype that is absent has no known peak"""
    memory_bytes: int | None = None
    memory_bytes_per_s: float | None = None
    link_bytes_per_s: float | None = None
    """between the GPUs of a node (NVLink, Infinity Fabric, else PCIe), both directions together, as data sheets say"""
    network_bytes_per_s: float | None = None
    """typical share of the network per GPU and direction; a site may have less"""
    link_domain: int | None = None
    """GPUs that these links join, where they are more than a node's: of several nodes in a rack"""
    peers: int | None = None
    """GPUs of its node that an equal part of these links goes to each; None: a switch, each has the whole rate"""
    source: str = ""
    measured: MeasuredRates | None = None
    fabric: Fabric | None = None
    """of a site: rates of its own nodes and network"""

    def peak_flops(self, dtype: str) -> float | None:
        """FLOP/s for the dtype, or the recipe's number format; None where unknown, and then MFU is null."""
        return self.peaks_flops.get(FORMATS.get(dtype, dtype))


_TABLE = (pkgutil.get_data(__name__, "gpus.csv") or b"").decode()
"""a line per kind: dense peaks in TFLOP/s by dtype, then GB, GB/s, and the source of all; what is empty is unknown"""
_PEAKS = ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")


def _times(text: str, unit: int) -> Any:
    if not text:
        return None
    return (int(text) if text.isdigit() else float(text)) * unit


def _gpu(row: Mapping[str, str]) -> Gpu:
    return Gpu(
        name=row["name"],
        peaks_flops={dtype: _times(row[dtype], TERA) for dtype in _PEAKS if row[dtype]},
        memory_bytes=_times(row["memory_gb"], GB),
        memory_bytes_per_s=_times(row["memory_gb_per_s"], GB),
        link_bytes_per_s=_times(row["link_gb_per_s"], GB),
        network_bytes_per_s=_times(row["network_gb_per_s"], GB),
        link_domain=_times(row["link_domain"], 1),
        peers=_times(row["peers"], 1),
        source=row["source"],
    )


GPUS = {row["name"]: _gpu(row) for row in csv.DictReader(_TABLE.splitlines())}
"""name -> GPU"""


_SAME_MEMORY = 0.9
"""of the catalogue's: names round (an H200 of 141 GB, a B200 of 180 or 192), different parts are 1.2 times apart"""


def gpu_kind(names: Iterable[str]) -> str | None:
    """The first name that is a known kind: "NVIDIA H100 80GB HBM3" and "nvidia_a100-sxm4-40gb" are.

    Whole words only: a GH200 is not an H200. Of several the kind with most words: an A100 on PCIe of 40 GB. None for a
    name that states less memory than its kind has: an A100 of 64 GB is none of the catalogue. (More is the host's.)
    """
    for name in names:
        words = re.findall(r"[a-z0-9]+", name.lower())
        joined = [first + second for first, second in itertools.pairwise(words)]
        gigabytes = [f"{word}b" for word in words if re.fullmatch(r"\d+g", word)]
        present = {*words, *joined, *gigabytes}
        sizes = [int(word[:-2]) * GB for word in present if re.fullmatch(r"\d+gb", word)]
        known = (kind for kind in GPUS if kind != "cpu" and set(kind.split("-")) <= present)
        found = [kind for kind in known if not sizes or min(sizes) > _SAME_MEMORY * (GPUS[kind].memory_bytes or 0)]
        if found:
            return max(found, key=lambda kind: kind.count("-"))
    return None


def best_matmul_share(gpu: str | None, dtype: str | None) -> float:
    """The share of its dense peak that no MFU on a kind of GPU exceeds: in bf16 and fp16 that of its chip's best matrix
    product and a spread of it; 0.95, which nothing reached, where none was measured.
    """
    kind = (gpu or "").lower()
    chip = constants.SAME_CHIP.get(kind, kind)
    known = constants.MATMUL.get((chip, "bf16")) if dtype in ("bf16", "fp16") else None
    alike = kind in GPUS and chip in GPUS and GPUS[kind].peaks_flops == GPUS[chip].peaks_flops
    return known.median * (1 + known.spread) if known and alike else 0.95
