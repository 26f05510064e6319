"""Rates measured on one cluster (``site.measured.yaml``), which replace medians of ``constants``, and its fabric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""collectives whose seconds may be given"""
Level = Literal["", "domain", "switch", "across"]
"""where nodes meet: in one NVLink domain (or Slurm block), else under one leaf switch, else further up; "": unknown"""
LEVELS: tuple[Level, ...] = ("domain", "switch", "across")
_READ = {"extra": "forbid", "strict": False}


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """Which nodes are near each other; 0: not known. Raises ValueError for less."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    domain_nodes: int = 0
    """nodes of the widest NVLink domain, or Slurm block"""
    domains: int = 0
    switch_nodes: int = 0
    """nodes of the widest leaf switch, or Slurm block"""
    switches: int = 0

    def __post_init__(self) -> None:
        if min(self.domain_nodes, self.domains, self.switch_nodes, self.switches) < 0:
            raise ValueError("numbers of nodes, domains and switches are 0 or more")


def bus_bandwidth(operation: str, size_bytes: float, seconds: float, ranks: float) -> float:
    """Bytes/s by which nccl-tests compares collectives with a link's speed (doc/PERFORMANCE.md of nccl-tests).

    ``size_bytes`` is what nccl-tests calls the size: the whole buffer, i.e. the output of an all-gather and the input
    of a reduce-scatter. ``operation``: one of KINDS, or else a message from one rank to another.
    """
    share = (ranks - 1) / ranks if operation in KINDS else 1.0
    return size_bytes / seconds * share * (2 if operation == "all_reduce" else 1)


@dataclass(frozen=True, kw_only=True)
class MeasuredCollective:
    """One collective as measured, in nccl-tests' terms."""

    __pydantic_config__: ClassVar[dict[str, object]] = _READ

    kind: str
    """all_reduce, all_gather, reduce_scatter or all_to_all"""
    nodes: int
    """1: within a node"""
    ranks: int
    """GPUs in all"""
    bytes: int
    """nccl-tests' size: of the whole buffer"""
    seconds: float
    """median of one call"""
    spread: float = 0.05
    """standard deviation of the logarithm over calls and groups of nodes"""
    level: Level = ""
    """where its nodes meet"""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, not {self.kind[:40]!r}")
        if self.nodes < 1 or self.ranks < max(self.nodes, 2) or self.bytes < 1 or not 0 < self.seconds < 1e4:
            raise ValueError("nodes, ranks (at least 2, and nodes), bytes and seconds must be positive")
        _check_spread(self.spread)


@dataclass(frozen=True, kw_only=True)
class MeasuredRates:
    """What was measured on a cluster; what is absent keeps its constant."""

    __pydantic_config__: ClassVar[dict[str, object]] = _READ

    date: str = ""
    """when: 2026-11-20"""
    nodes: tuple[str, ...] = ()
    """where: names of the nodes"""
    matmul_flops: dict[str, float] = field(default_factory=dict)
    """dtype -> FLOP/s of large matrix products, the slowest GPU's"""
    memory_bytes_per_s: float | None = None
    """read and written by a copy on one GPU"""
    inside_bytes_per_s: float | None = None
    """one GPU to another of the same node, one direction"""
    between_bytes_per_s: float | None = None
    """one GPU to one of another node, one direction, all GPUs of the node at once"""
    levels_bytes_per_s: dict[Level, float] = field(default_factory=dict)
    """the same by where the two nodes meet: `domain` (NVLink's, or Slurm's block), `switch` (leaf) or `across`"""
    collectives: tuple[MeasuredCollective, ...] = ()
    spread: float = 0.05
    """standard deviation of the logarithm of the rates over nodes"""

    def __post_init__(self) -> None:
        rates = [
            *self.matmul_flops.values(),
            *self.levels_bytes_per_s.values(),
            self.memory_bytes_per_s,
            self.inside_bytes_per_s,
            self.between_bytes_per_s,
        ]
        if any(rate is not None and not 0 < rate < 1e18 for rate in rates):
            raise ValueError("rates must be positive: FLOP/s, or bytes per second")
        _check_spread(self.spread)

    @property
    def provenance(self) -> str:
        """When and where, as text."""
        shown = ", ".join(self.nodes[:4]) + (f" and {len(self.nodes) - 4} more" if len(self.nodes) > 4 else "")
        return "measured" + (f" {self.date}" if self.date else "") + (f" on {shown}" if shown else "")


def _check_spread(spread: float) -> None:
    if not 0 < spread <= 2:
        raise ValueError("spread is a standard deviation of a logarithm: over 0, at most 2")
