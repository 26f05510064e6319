"""How fast ranks exchange data: each collective over sizes, inside a node and between nodes. Its declaration.

Models of communication belong to ``sweep.physics``.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench_workloads.parameters import Parameters
from sweep.contract import Workload

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p")
GROUPS = ("world", "intra_node", "inter_node")
"""all ranks; those of one node; those of one local rank over all nodes"""


@dataclass(frozen=True, kw_only=True)
class Settings(Parameters):
    """Which collectives, over which ranks, at which sizes."""

    operation: str = "all"
    """one collective, or all of them"""
    group: str = "all"
    """world: all ranks; intra_node: those of one node; inter_node: those of one local rank over all nodes; or all"""
    min_bytes: int = 1024
    """the smallest size"""
    max_bytes: int = 16 * 2**20
    """the largest size"""
    factor: int = 8
    """factor between one size and the next"""
    repeats: int = 5
    """consecutive calls per timing, which is their mean"""
    process_group_timeout_s: float = 300.0
    """a collective that takes longer is a failure"""
    teardown_timeout_s: float = 10.0
    """timeout for destroying the process group"""

    @property
    def operations(self) -> tuple[str, ...]:
        """The collectives to measure."""
        return OPERATIONS if self.operation == "all" else (self.operation,)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups to measure them over."""
        return GROUPS if self.group == "all" else (self.group,)

    @property
    def sizes(self) -> list[int]:
        """Bytes of the messages."""
        sizes = [self.min_bytes]
        while sizes[-1] * max(2, self.factor) <= self.max_bytes:
            sizes.append(sizes[-1] * max(2, self.factor))
        return sizes


WORKLOAD = Workload(
    name="collectives",
    takes_listener=True,
    main="bench_workloads.collectives.main:main",
    axes=frozenset({"dp", "grad_accum", "dtype"}),
    preload=("torch", "torch.distributed", "bench_workloads.collectives.main"),
    params=Settings.defaults(),
    choices={"dtype": ("fp32", "bf16"), "operation": ("all", *OPERATIONS), "group": ("all", *GROUPS)},
)
