"""Tier ``perf``: how fast one node's parts are, against the kind's expected rate, its bound, and the other nodes."""

from __future__ import annotations

from collections.abc import Callable

from sweep.checks.check import Check, Finding, Json, Rule, Stated, Verdict
from sweep.checks.expectation import NOTHING, Expectation, all_reduce, matmul, memory_copy, pair_of_gpus
from sweep.checks.rules import bounded, number_of, quantity, rows_of
from sweep.physics.measured import bus_bandwidth

RATES = "bench_workloads.checks.rates"


def slowest_rate(unit: str, expected: Callable[[Stated, Json], Expectation]) -> Rule:
    """The slowest rank's rate against what is expected."""

    def evaluate(value: Json, stated: Stated) -> Finding:
        rows = rows_of(value)
        if not rows:
            raise ValueError("nothing was measured")
        slow = min(rows, key=lambda row: number_of(row, "per_second"))
        return against(number_of(slow, "per_second"), expected(stated, slow), unit)

    return evaluate


def against(number: float, expected: Expectation, unit: str) -> Finding:
    """The number with its floor and bound, both shown, and what they are computed from."""
    found = bounded(number, expected.floor, expected.bound, unit)
    basis = f" ({expected.basis})" if expected.basis else ""
    wanted = f"{quantity(expected.expected, unit)}{basis}, {found.expected}" if expected.expected else ""
    return Finding(verdict=found.verdict, found=found.found, expected=wanted, number=number)


def within_node(value: Json, stated: Stated) -> Finding:
    """Bus bandwidth of the largest all-reduce of the node's ranks."""
    rows = rows_of(value)
    if not rows:
        return Finding(verdict=Verdict.OK, found="one rank", expected="")
    row = max(rows, key=lambda row: number_of(row, "bytes"))
    ranks, size = int(number_of(row, "ranks")), number_of(row, "bytes")
    rate = bus_bandwidth("all_reduce", size, number_of(row, "least_s"), ranks)
    return against(rate, all_reduce(stated.gpu, 1, ranks, size), "B/s")


def _check(name: str, reader: str, evaluate: Rule, remedy: str, source: str, *, gpu_only: bool = False) -> Check:
    return Check(
        name=name, tier="perf", reader=f"{RATES}:{reader}", evaluate=evaluate, remedy=remedy, source=source,
        gpu_only=gpu_only, median=True,
    )  # fmt: skip


PERF: tuple[Check, ...] = (
    _check(
        "matmul",
        "matmul",
        slowest_rate("FLOP/s", lambda stated, row: matmul(stated.gpu, str(dict(row).get("dtype")))),  # type: ignore[arg-type]
        "compare clocks, power cap, temperature and other users' processes with those of a fast node",
        "data sheet; ML Engineering, maximum achievable matmul FLOPS",
    ),
    _check(
        "memory copy",
        "memory_copy",
        slowest_rate("B/s", lambda stated, _: memory_copy(stated.gpu)),
        "check for other users' processes, ECC errors and, on CPUs, missing memory channels",
        "data sheet; STREAM",
    ),
    _check(
        "host to GPU",
        "host_to_gpu",
        slowest_rate("B/s", lambda *_: NOTHING),
        "check the PCIe generation and width, and the ranks' NUMA affinity",
        "the other nodes' median: the link's generation is in tier node",
        gpu_only=True,
    ),
    _check(
        "GPU to host",
        "gpu_to_host",
        slowest_rate("B/s", lambda *_: NOTHING),
        "check the PCIe generation and width, and the ranks' NUMA affinity",
        "the other nodes' median",
        gpu_only=True,
    ),
    _check(
        "GPU pairs",
        "pairs",
        slowest_rate("B/s", lambda stated, _: pair_of_gpus(stated.gpu)),
        "drain the node: `nvidia-smi nvlink --status`, `nvidia-smi topo -m`",
        "data sheet; ML Engineering: 396 of 450 GB/s (H200)",
        gpu_only=True,
    ),
    _check(
        "all-reduce in the node",
        "all_reduce",
        within_node,
        "drain the node: `nvidia-smi nvlink --status`; on CPUs look for other load",
        "NVLink's data sheet; NVIDIA dgxc and ML Engineering: 480 GB/s (8 H100)",
    ),
)
"""all checks of the tier"""
