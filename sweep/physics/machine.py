"""The rates that a step meets on one kind of GPU and cluster: of constants, or measured on this cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.physics import constants
from sweep.physics.columns import Numbers, read, words_in
from sweep.physics.constants import Constant
from sweep.physics.hardware import GPUS, Gpu
from sweep.physics.measured import MeasuredRates

_NOMINAL_PEAK = 1e14
_NOMINAL_MEMORY = 1e12
"""bytes/s, of a GPU with that peak: of those in ``sweep.physics.hardware`` half have between 0.3 and 0.6 of it"""
_NOMINAL_LINK = 2e11
_NOTHING = MeasuredRates()
LARGE_BYTES = float(16 << 20)
"""a measured collective of more bytes measures bandwidth, a smaller one about latency"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A kind of GPU with the network behind it, and what was measured there."""

    gpu: Gpu
    network: str = "infiniband"

    @property
    def measured(self) -> MeasuredRates:
        """What was measured on the cluster; empty if nothing was."""
        return self.gpu.measured or _NOTHING

    def within_links(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """The columns, a node being as many GPUs as the links join: of an NVL72 rack 72, though a node has four.

        Not where something was measured between nodes: then that is how fast they are.
        """
        known, domain = self.measured, self.gpu.link_domain or 0
        across = known.between_bytes_per_s is not None or any(one.nodes > 1 for one in known.collectives)
        if across or not np.any(read(columns, "gpus_per_node") < domain):
            return columns
        return Numbers({**columns, "gpus_per_node": np.maximum(read(columns, "gpus_per_node"), float(domain))})

    def matmul_flops(self, columns: Mapping[str, Any]) -> Any:
        """FLOP/s of the best matrix products in each candidate's dtype."""
        return self.by_dtype(columns, self.matmul_rate)

    @property
    def matmul_scale(self) -> float:
        """Measured over nominal rate of bf16 products: attention, on the same tensor cores, scales with it."""
        if "bf16" not in self.measured.matmul_flops or "bf16" not in self.gpu.peaks_flops:
            return 1.0
        return self.measured.matmul_flops["bf16"] / (
            self.peak("bf16") * self.matmul_share("bf16").median * constants.ORDINARY_SHAPE.median
        )

    def by_dtype(self, columns: Mapping[str, Any], rate: Any) -> Any:
        """A rate for each candidate's dtype."""
        dtype = read(columns, "dtype")
        found: Any = np.zeros(dtype.shape)
        for name in words_in(dtype):
            found = np.where(dtype == name, rate(name), found)
        return found

    def matmul_rate(self, dtype: str) -> float:
        """FLOP/s of the best matrix products in a dtype."""
        if dtype in self.measured.matmul_flops:
            return self.measured.matmul_flops[dtype]
        return self.peak(dtype) * self.matmul_share(dtype).median * constants.ORDINARY_SHAPE.median

    def peak(self, dtype: str) -> float:
        """FLOP/s of the data sheet; a nominal figure if unknown."""
        return self.gpu.peaks_flops.get(dtype) or _NOMINAL_PEAK

    def matmul_share(self, dtype: str) -> Constant:
        """Share of the data sheet's peak that the best matrix products reach."""
        kind = self.gpu.name if (self.gpu.name, "bf16") in constants.MATMUL else constants.SAME_CHIP.get(self.gpu.name)
        wide = {"fp16": "bf16", "tf32": "bf16", "fp32": "bf16"}.get(dtype, dtype)
        for name in (dtype, wide):
            if kind is not None and (kind, name) in constants.MATMUL:
                return constants.MATMUL[kind, name]
        if kind is not None and dtype == "fp4":
            return constants.MATMUL["b200", "fp4"]
        return constants.ANY_MATMUL

    def matmul_spread(self, dtype: str) -> float:
        """Uncertainty of that rate."""
        if dtype in self.measured.matmul_flops:
            return self.measured.spread
        chip = constants.SAME_CHIP.get(self.gpu.name, self.gpu.name)
        other = 0.0 if chip not in GPUS or GPUS[chip].peaks_flops == self.gpu.peaks_flops else constants.OTHER_KIND
        return math.hypot(self.matmul_share(dtype).spread, constants.ORDINARY_SHAPE.spread, other)

    @property
    def network_spread(self) -> float:
        """Uncertainty of the seconds of a collective between nodes."""
        return self.collective_spread(across=True)

    def collective_spread(self, *, across: bool) -> float:
        """The same between nodes or within one: what was measured on one side says nothing of the other."""
        known = self.measured
        rate = known.between_bytes_per_s if across else known.inside_bytes_per_s
        if found := [one.spread for one in known.collectives if (one.nodes > 1) == across]:
            return max(found)
        if rate is not None:
            return math.hypot(known.spread, 0.15)
        return 0.4 if across and self.network == "efa" else 0.25

    @property
    def memory_bytes_per_s(self) -> float:
        """What kernels that only read and write reach."""
        if self.measured.memory_bytes_per_s is not None:
            return self.measured.memory_bytes_per_s
        return (self.gpu.memory_bytes_per_s or _NOMINAL_MEMORY) * constants.MEMORY_SHARE.median

    @property
    def architecture(self) -> str:
        """Of the attention kernels: ampere (and older), hopper or blackwell."""
        peak = self.peak("bf16")
        return "blackwell" if "fp4" in self.gpu.peaks_flops else "hopper" if peak > 6e14 else "ampere"

    @property
    def multiprocessors(self) -> int:
        """Of the GPU."""
        return constants.MULTIPROCESSORS.get(self.gpu.name, 132)

    @property
    def launch_s(self) -> float:
        """Of the host, for one eager operation."""
        return constants.LAUNCH_S.median * (constants.GRACE.median if self.gpu.name in constants.GRACE_HOSTS else 1.0)

    @property
    def inside_bytes_per_s(self) -> float:
        """One direction of the links inside a node."""
        return self.measured.inside_bytes_per_s or (self.gpu.link_bytes_per_s or 2 * _NOMINAL_LINK) / 2

    @property
    def between_share(self) -> Constant:
        """Share of the network's rate that large messages reach."""
        return constants.EFA_SHARE if self.network == "efa" else constants.BETWEEN_SHARE

    def between_bytes_per_s(self, columns: Mapping[str, Any]) -> Any:
        """One GPU's share of the network between nodes."""
        if "network_bytes_per_s" in columns:
            return read(columns, "network_bytes_per_s")
        return self.measured.between_bytes_per_s or self.gpu.network_bytes_per_s or self.inside_bytes_per_s / 8

    def rates(self, profile_kernel: str = "flash-2") -> list[tuple[str, str, str]]:
        """(rate, value with its spread, source) of what step times are predicted from, measured ones first in kind."""
        known, provenance = self.measured, self.measured.provenance
        found = []
        for dtype in self.gpu.peaks_flops:
            measured = dtype in known.matmul_flops
            source = provenance if measured else self.matmul_share(dtype).source
            found.append(
                (
                    f"matrix products, {dtype}",
                    _shown(self.matmul_rate(dtype), "FLOP/s", self.matmul_spread(dtype)),
                    source,
                )
            )
        share = constants.MEMORY_SHARE
        spread, source = (known.spread, provenance) if known.memory_bytes_per_s else (share.spread, share.source)
        found.append(("memory", _shown(self.memory_bytes_per_s, "B/s", spread), source))
        shares = constants.attention(profile_kernel, self.architecture)
        for way, constant in zip(("forward", "backward"), shares, strict=True):
            rate = self.peak("bf16") * constant.median
            found.append(
                (f"attention {way}, {profile_kernel}", _shown(rate, "FLOP/s", constant.spread), constant.source)
            )
        ends = [
            (known.inside_bytes_per_s, "link in a node", self.inside_bytes_per_s),
            (known.between_bytes_per_s, "network per GPU", float(self.between_bytes_per_s({}))),
        ]
        for measured_rate, name, rate in ends:
            spread, source = (known.spread, provenance) if measured_rate else (self.network_spread, "data sheet")
            found.append((name, _shown(float(rate), "B/s", spread), source))
        for one in known.collectives:
            text = f"{one.kind} of {one.bytes:,} B, {one.ranks} GPUs on {one.nodes} node{'s' * (one.nodes > 1)}"
            found.append((text, f"{one.seconds:.3g} s ± {one.spread:.0%}", provenance))
        return found


def _shown(value: float, unit: str, spread: float) -> str:
    scale, prefix = (1e12, "T") if value >= 1e12 else (1e9, "G")
    return f"{value / scale:.4g} {prefix}{unit} ± {spread:.0%}"
