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
from sweep.physics.fabric import level, placed
from sweep.physics.hardware import GPUS, Gpu
from sweep.physics.measured import LEVELS, Level, MeasuredRates

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

        Not where something was measured between such nodes: then that is how fast they are. With how many ranks are
        in one unit of the fabric (``fabric.placed``), where that is known.
        """
        if "switch_gpus" in columns:
            return columns
        known, levels, each = self.measured, self.measured.levels_bytes_per_s, read(columns, "gpus_per_node")
        found = placed(columns, self.gpu.fabric) if self.gpu.fabric else {}
        across = known.between_bytes_per_s is not None or any(one.nodes > 1 for one in known.collectives)
        domain = found.get("domain_gpus", 0.0)
        domain = np.where(domain > 0, domain, float(self.gpu.link_domain or 0)) * bool(self.gpu.link_domain)
        if not ("domain" in levels if levels else across) and np.any(each < domain):
            found["gpus_per_node"] = np.maximum(each, domain)
        return Numbers({**columns, **found}) if found else columns

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
        wide = {"fp16": "bf16", "tf32": "bf16", "fp32": "bf16", "fp8": "bf16"}.get(dtype, dtype)
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

    def between_spread(self, columns: Mapping[str, Any], axis: str) -> Any:
        """Uncertainty of the seconds of collectives between nodes, of an axis' groups."""
        at, names = level(columns, axis), ("", *LEVELS)
        return np.choose(0 if at is None else at + 1, [self.collective_spread(level=name) for name in names])

    def collective_spread(self, *, across: bool = True, level: Level = "") -> float:
        """The same between nodes or within one: what was measured on one side says nothing of the other, nor what was
        measured where nodes are near of those further apart.
        """
        known, levels = self.measured, self.measured.levels_bytes_per_s
        rate = levels.get(level, known.between_bytes_per_s) if across else known.inside_bytes_per_s
        found = [one for one in known.collectives if (one.nodes > 1) == across]
        if level and (level not in levels if levels else level == "across"):
            rate, found = None, []
        if found := [one for one in found if not (level and one.level) or one.level == level]:
            return max(one.spread for one in found)
        if rate is not None:
            return math.hypot(known.spread, 0.15)
        return 0.4 if across and self.network == "efa" else 0.25

    @property
    def memory_bytes_per_s(self) -> float:
        """What kernels that only read and write reach."""
        if self.measured.memory_bytes_per_s is not None:
            return self.measured.memory_bytes_per_s
        return (self.gpu.memory_bytes_per_s or _NOMINAL_MEMORY) * self.memory_share.median

    @property
    def memory_share(self) -> Constant:
        """Share of the data sheet's memory rate that kernels reach which only read and write."""
        return constants.BLACKWELL_MEMORY_SHARE if self.architecture == "blackwell" else constants.MEMORY_SHARE

    @property
    def architecture(self) -> str:
        """Of the attention kernels: ampere (and older), hopper, blackwell, or AMD's cdna."""
        if self.gpu.name.startswith("mi"):
            return "cdna"
        return "blackwell" if "fp4" in self.gpu.peaks_flops else "hopper" if self.peak("bf16") > 6e14 else "ampere"

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
        """One direction of a GPU's links inside a node; of them one was measured, to another GPU."""
        one = self.measured.inside_bytes_per_s
        return one * (self.gpu.peers or 1) if one else (self.gpu.link_bytes_per_s or 2 * _NOMINAL_LINK) / 2

    def inside_group_bytes_per_s(self, ranks: Any) -> Any:
        """The same of a GPU's links to the others of a group of so many in its node."""
        linked = np.maximum(np.asarray(ranks) - 1, 1) / (self.gpu.peers or 1)
        return self.inside_bytes_per_s * np.minimum(linked, 1.0)

    @property
    def between_share(self) -> Constant:
        """Share of the network's rate that large messages reach."""
        return constants.EFA_SHARE if self.network == "efa" else constants.BETWEEN_SHARE

    def between_bytes_per_s(self, columns: Mapping[str, Any], axis: str = "") -> Any:
        """One GPU's share of the network between nodes: between those that a group of the axis spans."""
        if "network_bytes_per_s" in columns:
            return read(columns, "network_bytes_per_s")
        at = level(columns, axis) if axis and self.measured.levels_bytes_per_s else None
        return self.level_bytes_per_s("") if at is None else np.choose(at, [*map(self.level_bytes_per_s, LEVELS)])

    def level_bytes_per_s(self, name: Level) -> float:
        """The same where nodes meet at a level: of one that was not measured, as at the next, if not in a domain."""
        rates, known = self.measured.levels_bytes_per_s, self.measured.between_bytes_per_s
        near = rates.get("across" if name == "switch" else "switch") if name in ("switch", "across") else None
        return rates.get(name) or near or known or self.gpu.network_bytes_per_s or self.inside_bytes_per_s / 8

    def rates(self, profile_kernel: str = "flash-2") -> list[tuple[str, str, str]]:
        """(rate, value with its spread, source) of what step times are predicted from, measured ones first in kind."""
        known, provenance = self.measured, self.measured.provenance
        found = []
        for dtype in self.gpu.peaks_flops:
            source = provenance if dtype in known.matmul_flops else self.matmul_share(dtype).source
            shown = _shown(self.matmul_rate(dtype), "FLOP/s", self.matmul_spread(dtype))
            found.append((f"matrix products, {dtype}", shown, source))
        share = self.memory_share
        spread, source = (known.spread, provenance) if known.memory_bytes_per_s else (share.spread, share.source)
        found.append(("memory", _shown(self.memory_bytes_per_s, "B/s", spread), source))
        shares = constants.attention(profile_kernel, self.architecture, self.gpu.name)
        for way, constant in zip(("forward", "backward"), shares, strict=True):
            shown = _shown(self.peak("bf16") * constant.median, "FLOP/s", constant.spread)
            found.append((f"attention {way}, {profile_kernel}", shown, constant.source))
        ends = [
            (known.inside_bytes_per_s, "link in a node", self.inside_bytes_per_s),
            (known.between_bytes_per_s, "network per GPU", float(self.between_bytes_per_s({}))),
        ]
        ends += [(rate, f"network per GPU, {name}", rate) for name, rate in known.levels_bytes_per_s.items()]
        for measured_rate, name, rate in ends:
            spread, source = (known.spread, provenance) if measured_rate else (self.collective_spread(), "data sheet")
            found.append((name, _shown(float(rate), "B/s", spread), source))
        for one in known.collectives:
            text = f"{one.kind} of {one.bytes:,} B, {one.ranks} GPUs on {one.nodes} node{'s' * (one.nodes > 1)}"
            found.append((text, f"{one.seconds:.3g} s ± {one.spread:.0%}", provenance))
        return found


def _shown(value: float, unit: str, spread: float) -> str:
    scale, prefix = (1e12, "T") if value >= 1e12 else (1e9, "G")
    return f"{value / scale:.4g} {prefix}{unit} ± {spread:.0%}"
