"""Which rates a healthy machine reaches: a physical bound, and what is expected of it. Bytes/s, FLOP/s.

Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md). Within a node the link's data-sheet rate counts; across
nodes a hierarchical all-reduce is also bound by the node's network adapters. Constants lie between fabrics, so both the
bound and the expected value are shown, and after the first healthy run the median of the nodes is the finer measure.
"""

from __future__ import annotations

from dataclasses import dataclass

from sweep.physics import constants
from sweep.physics.hardware import GPUS, Gpu
from sweep.physics.machine import Machine

RING_SHARE = 0.78
"""Of the link's rate in one direction, ring all-reduce, all-gather and reduce-scatter of a node: ML Engineering's
tables have 366/450 (H200), 235/300 (A100), 682/900 (B200): 0.76 to 0.81"""
SWITCH_SHARE = 1.0
"""The same where the switch reduces (NVLS): 480/450 (H100, H200; NVIDIA dgxc, ML Engineering), 838/900 (B200)"""
SWITCH_FROM_GPUS = {"h100": 5, "h200": 5, "h800": 5, "b200": 6, "b300": 6, "gb200": 6}
"""kind -> GPUs from which NCCL lets the switch reduce, in ML Engineering's measurements; fewer: a ring"""
PAIR_SHARE = 0.83
"""One GPU to another of its node: 396/450 (H200), 237/300 (A100), ML Engineering"""
HALF_BYTES = 21 * 2**20
"""Size at which an all-reduce of a node has half its rate: 362 GB/s at 64 MiB, 400 at 128 MiB, 466 at 1 GiB, 480 at
16 GiB on 8 H100 (NVIDIA dgxc, NCCL README)"""
ADAPTER_SHARE = 0.94
"""Payload over line rate of one NDR adapter: 46 to 48 of 50 GB/s (nccl-tests issue 290)"""
FABRIC_SHARE = 0.71
"""Reached share of min(NVLink, adapters) on any fabric: the one published figure of two nodes on RoCE, 339 of 480 GB/s.
nccl-tests on InfiniBand reach 0.85 to 0.95; EFA by ``constants.EFA_SHARE`` 0.73"""
FLOOR_SHARE = 0.85
"""of the expected rate: published floors are 0.90 to 0.97 of the measured ones, and the expectation is within 7 % of
those"""
SHORT_MATMUL_SHARE = 0.80
"""of the best matmul rate: runs under a minute give 80 to 90 % of it (ML Engineering)"""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """Of one rate; None: nothing is known of this kind."""

    bound: float | None
    """no measurement can reach it"""
    expected: float | None
    basis: str = ""
    """what it is computed from"""

    @property
    def floor(self) -> float | None:
        """Less than this is unfit."""
        return None if self.expected is None else FLOOR_SHARE * self.expected


NOTHING = Expectation(bound=None, expected=None)


def gpu_of(kind: str) -> Gpu:
    """The data of a kind, empty for one that is not known."""
    return GPUS.get(kind, GPUS["cpu"])


def adapters_ceiling(bytes_per_s: float, nodes: int, gpus_per_node: int) -> float:
    """Bus bandwidth of an all-reduce over several nodes whose adapters together carry ``bytes_per_s`` in one direction.

    Hierarchical: each node's share leaves and enters it 2 (N - 1) / N times over all its adapters, and the bus
    bandwidth counts 2 (n - 1) / n of the size for n GPUs: B N / (N - 1) (n - 1) / n.
    """
    gpus = nodes * gpus_per_node
    return bytes_per_s * nodes / (nodes - 1) * (gpus - 1) / gpus


def all_reduce(kind: str, nodes: int, gpus_per_node: int, size_bytes: float) -> Expectation:
    """Bus bandwidth of an all-reduce of this size."""
    gpu = gpu_of(kind)
    if gpu.link_bytes_per_s is None or nodes * gpus_per_node < 2:
        return NOTHING
    one_way = float(Machine(gpu=gpu).inside_group_bytes_per_s(gpus_per_node))
    switch = gpus_per_node >= SWITCH_FROM_GPUS.get(kind, 1 << 30)
    # Where the switch reduces, each GPU sends its buffer once for the reduction and 1/n for the broadcast, so the size
    # over the time is at most B / (1 + 1/n), and the bus bandwidth 2 (n - 1) / n times that.
    bound = one_way * 2 * (gpus_per_node - 1) / (gpus_per_node + 1) if switch else one_way
    large = one_way * (SWITCH_SHARE if switch else RING_SHARE)
    basis = f"NVLink {one_way / 1e9:.0f} GB/s {'in the switch' if switch else 'ring'}"
    size_share = 1 / (1 + HALF_BYTES / size_bytes)
    if nodes == 1:
        return Expectation(bound=bound, expected=large * size_share, basis=basis)
    if gpu.network_bytes_per_s is None:
        return Expectation(bound=bound, expected=None, basis=basis)
    ceiling = adapters_ceiling(gpu.network_bytes_per_s * gpus_per_node, nodes, gpus_per_node)
    basis += f", adapters of {nodes} nodes {ceiling / 1e9:.0f} GB/s, times {FABRIC_SHARE:.2f} (any fabric)"
    return Expectation(bound=min(bound, ceiling), expected=min(large, ceiling) * FABRIC_SHARE * size_share, basis=basis)


def pair_of_gpus(kind: str) -> Expectation:
    """One GPU to another of the same node, one direction."""
    gpu = gpu_of(kind)
    return _share(gpu.link_bytes_per_s and float(Machine(gpu=gpu).inside_group_bytes_per_s(2)), PAIR_SHARE, "link")


def adapter(kind: str) -> Expectation:
    """One GPU to one of another node over its own adapter, one direction."""
    return _share(gpu_of(kind).network_bytes_per_s, ADAPTER_SHARE, "adapter")


def matmul(kind: str, dtype: str) -> Expectation:
    """FLOP/s of a large product in a run of seconds."""
    best = constants.MATMUL.get((kind, dtype), Machine(gpu=gpu_of(kind)).matmul_share(dtype)).median
    return _share(gpu_of(kind).peak_flops(dtype), best * SHORT_MATMUL_SHARE, f"{best:.2f} of the peak, short")


def memory_copy(kind: str) -> Expectation:
    """Bytes read and written per second by a copy in the GPU's memory."""
    return _share(gpu_of(kind).memory_bytes_per_s, constants.MEMORY_SHARE.median, "data sheet")


def _share(bound: float | None, reached: float, basis: str) -> Expectation:
    return NOTHING if bound is None else Expectation(bound=bound, expected=reached * bound, basis=basis)
