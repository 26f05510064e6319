"""Data of each kind of GPU. Peaks are dense (no structured sparsity), per GPU, from the makers' data sheets."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
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


def _peaks(**tera: float) -> dict[str, float]:
    return {dtype: value * TERA for dtype, value in tera.items()}


_VOLTA = _peaks(fp16=125, fp32=15.7)
_AMPERE = _peaks(bf16=312, fp16=312, tf32=156, fp32=19.5)
_HOPPER = _peaks(bf16=989, fp16=989, fp8=1979, tf32=494.7, fp32=66.9)


def _named(*gpus: Gpu) -> dict[str, Gpu]:
    return {gpu.name: gpu for gpu in gpus}


GPUS = _named(
    Gpu(
        name="v100",
        peaks_flops=_VOLTA,
        memory_bytes=32 * GB,
        memory_bytes_per_s=900 * GB,
        link_bytes_per_s=300 * GB,
        network_bytes_per_s=12.5 * GB,
        source="NVIDIA V100 data sheet, SXM2 32 GB; network: 100 Gb/s per GPU (DGX-2)",
    ),
    Gpu(
        name="a100",
        peaks_flops=_AMPERE,
        memory_bytes=80 * GB,
        memory_bytes_per_s=2039 * GB,
        link_bytes_per_s=600 * GB,
        network_bytes_per_s=25 * GB,
        source="NVIDIA A100 data sheet, SXM4 80 GB; network: 200 Gb/s per GPU (DGX A100)",
    ),
    Gpu(
        name="h100",
        peaks_flops=_HOPPER,
        memory_bytes=80 * GB,
        memory_bytes_per_s=3350 * GB,
        link_bytes_per_s=900 * GB,
        network_bytes_per_s=50 * GB,
        source="NVIDIA H100 data sheet, SXM5 (1,979 bf16 with sparsity); network: 400 Gb/s per GPU (DGX H100)",
    ),
    Gpu(
        name="h100-pcie",
        peaks_flops=_peaks(bf16=756, fp16=756, fp8=1513, tf32=378, fp32=51),
        memory_bytes=80 * GB,
        memory_bytes_per_s=2000 * GB,
        link_bytes_per_s=600 * GB,
        source="NVIDIA H100 data sheet, PCIe (1,513 bf16 with sparsity); NVLink by a bridge between two",
    ),
    Gpu(
        name="h20",
        peaks_flops=_peaks(bf16=148, fp16=148, fp8=296, tf32=74, fp32=44),
        memory_bytes=96 * GB,
        memory_bytes_per_s=4000 * GB,
        link_bytes_per_s=900 * GB,
        network_bytes_per_s=50 * GB,
        source="NVIDIA H20 specifications (96 GB HBM3); network: 400 Gb/s per GPU (HGX)",
    ),
    Gpu(
        name="b200",
        peaks_flops=_peaks(bf16=2250, fp16=2250, fp8=4500, fp4=9000, tf32=1125, fp32=75),
        memory_bytes=180 * GB,
        memory_bytes_per_s=8000 * GB,
        link_bytes_per_s=1800 * GB,
        network_bytes_per_s=50 * GB,
        source="NVIDIA DGX B200 data sheet (1,440 GB, 64 TB/s, 72 PFLOPS sparse fp8 for 8 GPUs)",
    ),
    Gpu(
        name="gb200",
        peaks_flops=_peaks(bf16=2500, fp16=2500, fp8=5000, fp4=10000, tf32=1250, fp32=80),
        memory_bytes=186 * GB,
        memory_bytes_per_s=8000 * GB,
        link_bytes_per_s=1800 * GB,
        network_bytes_per_s=50 * GB,
        link_domain=72,
        source="NVIDIA GB200 NVL72 data sheet, per GPU (180 PFLOPS dense bf16, 13.4 TB for 72)",
    ),
    Gpu(
        name="mi300x",
        peaks_flops=_peaks(bf16=1307.4, fp16=1307.4, fp8=2614.9, tf32=653.7, fp32=163.4),
        memory_bytes=192 * GB,
        memory_bytes_per_s=5300 * GB,
        link_bytes_per_s=896 * GB,
        network_bytes_per_s=50 * GB,
        peers=7,
        source="AMD Instinct MI300X data sheet; network: 400 Gb/s per GPU (platform reference design)",
    ),
    Gpu(
        name="mi250x",
        peaks_flops=_peaks(bf16=191.5, fp16=191.5, fp32=47.9),
        memory_bytes=64 * GB,
        memory_bytes_per_s=1638 * GB,
        link_bytes_per_s=200 * GB,
        network_bytes_per_s=12.5 * GB,
        source="AMD Instinct MI250X data sheet, one of its two dies; links to another's; network: 200 Gb/s for two",
    ),
    Gpu(
        name="l40s",
        peaks_flops=_peaks(bf16=362.05, fp16=362.05, fp8=733, tf32=183, fp32=91.6),
        memory_bytes=48 * GB,
        memory_bytes_per_s=864 * GB,
        link_bytes_per_s=64 * GB,
        source="NVIDIA L40S data sheet; PCIe 4.0 x16, no NVLink",
    ),
    Gpu(
        name="l4",
        peaks_flops=_peaks(bf16=121, fp16=121, fp8=242.5, tf32=60, fp32=30.3),
        memory_bytes=24 * GB,
        memory_bytes_per_s=300 * GB,
        link_bytes_per_s=64 * GB,
        source="NVIDIA L4 data sheet (242 bf16 with sparsity); PCIe 4.0 x16, no NVLink",
    ),
    Gpu(
        name="a40",
        peaks_flops=_peaks(bf16=149.7, fp16=149.7, tf32=74.8, fp32=37.4),
        memory_bytes=48 * GB,
        memory_bytes_per_s=696 * GB,
        link_bytes_per_s=112.5 * GB,
        source="NVIDIA A40 data sheet; NVLink by a bridge between two",
    ),
    Gpu(
        name="a10",
        peaks_flops=_peaks(bf16=125, fp16=125, tf32=62.5, fp32=31.2),
        memory_bytes=24 * GB,
        memory_bytes_per_s=600 * GB,
        link_bytes_per_s=64 * GB,
        source="NVIDIA A10 data sheet; PCIe 4.0 x16, no NVLink",
    ),
    Gpu(
        name="rtx4090",
        peaks_flops=_peaks(bf16=165.2, fp16=165.2, fp8=330.3, tf32=82.6, fp32=82.6),
        memory_bytes=24 * GB,
        memory_bytes_per_s=1008 * GB,
        link_bytes_per_s=64 * GB,
        source="NVIDIA Ada architecture white paper, appendix A (fp32 accumulation); PCIe 4.0 x16, no NVLink",
    ),
    Gpu(name="cpu", source="no peak is known for a CPU in general, so MFU is null"),
)
"""name -> GPU"""


def _like(base: str, name: str, source: str, **changed: Any) -> Gpu:
    """A kind that has the chip of another."""
    return replace(GPUS[base], name=name, source=source, **changed)


_NVL = _peaks(bf16=835.5, fp16=835.5, fp8=1671, tf32=417.5, fp32=60)
_BRIDGE = "NVLink by a bridge between two"

GPUS |= _named(
    _like(
        "v100",
        "v100-16gb",
        "NVIDIA V100 data sheet, SXM2 16 GB; network: 100 Gb/s per GPU (DGX-1)",
        memory_bytes=16 * GB,
    ),
    _like(
        "a100",
        "a100-40gb",
        "NVIDIA A100 data sheet, SXM4 40 GB; network: 200 Gb/s per GPU (DGX A100)",
        memory_bytes=40 * GB,
        memory_bytes_per_s=1555 * GB,
    ),
    _like(
        "h100",
        "h200",
        "NVIDIA H200 data sheet, SXM; network: 400 Gb/s per GPU (DGX H200)",
        memory_bytes=141 * GB,
        memory_bytes_per_s=4800 * GB,
    ),
    _like(
        "h100",
        "gh200",
        "NVIDIA GH200 Grace Hopper data sheet, 96 GB HBM3; NVLink where the system has it",
        memory_bytes=96 * GB,
        memory_bytes_per_s=4000 * GB,
        network_bytes_per_s=None,
    ),
    _like(
        "mi300x",
        "mi325x",
        "AMD Instinct MI325X data sheet; network: 400 Gb/s per GPU (platform reference design)",
        memory_bytes=256 * GB,
        memory_bytes_per_s=6000 * GB,
    ),
    _like(
        "a100",
        "a100-pcie",
        f"NVIDIA A100 data sheet, PCIe 80 GB; {_BRIDGE}",
        memory_bytes_per_s=1935 * GB,
        network_bytes_per_s=None,
    ),
    _like(
        "mi300x",
        "mi355x",
        "AMD Instinct MI355X data sheet; network: 400 Gb/s per GPU (platform reference design)",
        peaks_flops=_peaks(bf16=2516.6, fp16=2516.6, fp8=5033.2, fp4=10066.3, fp32=157.3),
        memory_bytes=288 * GB,
        memory_bytes_per_s=8000 * GB,
        link_bytes_per_s=1075 * GB,
    ),
)
GPUS |= _named(
    _like(
        "v100",
        "v100-pcie",
        "NVIDIA V100 data sheet, PCIe 32 GB; PCIe 3.0 x16",
        peaks_flops=_peaks(fp16=112, fp32=14),
        link_bytes_per_s=32 * GB,
        network_bytes_per_s=None,
    ),
    _like(
        "v100",
        "v100s-pcie",
        "NVIDIA V100 data sheet, V100S PCIe 32 GB; PCIe 3.0 x16",
        peaks_flops=_peaks(fp16=130, fp32=16.4),
        memory_bytes_per_s=1134 * GB,
        link_bytes_per_s=32 * GB,
        network_bytes_per_s=None,
    ),
    Gpu(
        name="t4",
        peaks_flops=_peaks(fp16=65, fp32=8.1),
        memory_bytes=16 * GB,
        memory_bytes_per_s=300 * GB,
        link_bytes_per_s=32 * GB,
        source="NVIDIA T4 data sheet; PCIe 3.0 x16, no NVLink",
    ),
    _like(
        "a100-40gb",
        "a100-pcie-40gb",
        f"NVIDIA A100 data sheet, PCIe 40 GB; {_BRIDGE}",
        network_bytes_per_s=None,
    ),
    Gpu(
        name="a30",
        peaks_flops=_peaks(bf16=165, fp16=165, tf32=82, fp32=10.3),
        memory_bytes=24 * GB,
        memory_bytes_per_s=933 * GB,
        link_bytes_per_s=200 * GB,
        source=f"NVIDIA A30 data sheet; {_BRIDGE}",
    ),
    Gpu(
        name="a6000",
        peaks_flops=_peaks(bf16=154.8, fp16=154.8, tf32=77.4, fp32=38.7),
        memory_bytes=48 * GB,
        memory_bytes_per_s=768 * GB,
        link_bytes_per_s=112.5 * GB,
        source=f"NVIDIA RTX A6000 data sheet (309.7 tensor TFLOPS with sparsity); {_BRIDGE}",
    ),
    *(
        _like(kind, kind.replace("100", "800"), f"{GPUS[kind].source}; fewer NVLinks", link_bytes_per_s=400 * GB)
        for kind in ("a100", "a100-pcie", "h100", "h100-pcie")
    ),
    _like(
        "h100-pcie",
        "h100-nvl",
        f"NVIDIA H100 data sheet, NVL (1,671 bf16 with sparsity), one of the two GPUs; {_BRIDGE}",
        peaks_flops=_NVL,
        memory_bytes=94 * GB,
        memory_bytes_per_s=3900 * GB,
    ),
    _like(
        "h200",
        "h200-nvl",
        "NVIDIA H200 data sheet, NVL (1,671 bf16 with sparsity); NVLink by a bridge between two or four",
        peaks_flops=_NVL,
        network_bytes_per_s=None,
    ),
    _like(
        "h20",
        "h20-3e",
        "NVIDIA H20 specifications, 141 GB HBM3e; network: 400 Gb/s per GPU (HGX)",
        memory_bytes=141 * GB,
        memory_bytes_per_s=4800 * GB,
    ),
    _like(
        "gh200",
        "gh200-144gb",
        "NVIDIA GH200 Grace Hopper data sheet, 144 GB HBM3e; NVLink where the system has it",
        memory_bytes=144 * GB,
        memory_bytes_per_s=4900 * GB,
    ),
    _like(
        "b200",
        "b300",
        "NVIDIA DGX B300 and HGX B300 data sheets (144 | 108 PFLOPS fp4, 72 sparse fp8, 2.1 TB for 8 GPUs; of "
        "each GPU's 288 GB 270 are usable); network: 800 Gb/s per GPU (ConnectX-8)",
        peaks_flops=_peaks(bf16=2250, fp16=2250, fp8=4500, fp4=13500, tf32=1125, fp32=75),
        memory_bytes=270 * GB,
        network_bytes_per_s=100 * GB,
    ),
    _like(
        "gb200",
        "gb300",
        "NVIDIA GB300 NVL72 data sheet (for 72: 1,440 | 1,080 PFLOPS fp4, 720 sparse fp8, 20 TB, 576 TB/s); "
        "network: 800 Gb/s per GPU (ConnectX-8)",
        peaks_flops=_peaks(bf16=2500, fp16=2500, fp8=5000, fp4=15000, tf32=1250, fp32=80),
        memory_bytes=279 * GB,
        network_bytes_per_s=100 * GB,
    ),
    Gpu(
        name="l40",
        peaks_flops=_peaks(bf16=181.05, fp16=181.05, fp8=362, tf32=90.5, fp32=90.5),
        memory_bytes=48 * GB,
        memory_bytes_per_s=864 * GB,
        link_bytes_per_s=64 * GB,
        source="NVIDIA L40 data sheet; PCIe 4.0 x16, no NVLink",
    ),
    Gpu(
        name="rtx-6000-ada",
        peaks_flops=_peaks(bf16=364.2, fp16=364.2, fp8=728.5, tf32=182.1, fp32=91.1),
        memory_bytes=48 * GB,
        memory_bytes_per_s=960 * GB,
        link_bytes_per_s=64 * GB,
        source="NVIDIA RTX 6000 Ada data sheet (1,457 fp8 TFLOPS with sparsity); PCIe 4.0 x16, no NVLink",
    ),
)


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
