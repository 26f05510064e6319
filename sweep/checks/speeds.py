"""Tier ``perf``: how fast a node's parts are, as its ranks measured them, against the kind's expected rate, its bound,
and the other nodes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sweep.checks.check import Check, CheckResult, Finding, Json, NodeReadings, Reading, Rule, Stated, Verdict
from sweep.checks.expectation import NOTHING, Expectation, all_reduce, matmul, memory_copy, pair_of_gpus
from sweep.checks.fleet import evaluate_all
from sweep.checks.rules import number_of, quantity, rows_of
from sweep.physics.measured import bus_bandwidth

RATES = "bench_workloads.checks.rates"


def slowest_rate(expected: Callable[[Stated, Json], Expectation], unit: str = "B/s") -> Rule:
    """The slowest rank's rate against what is expected."""

    def evaluate(value: Json, stated: Stated) -> Finding:
        rows = rows_of(value)
        if not rows:
            raise ValueError("nothing was measured")
        slow = min(rows, key=lambda row: number_of(row, "per_second"))
        return against(number_of(slow, "per_second"), expected(stated, slow), unit)

    return evaluate


def against(number: float, expected: Expectation, unit: str) -> Finding:
    """The number with its floor, below which it is unfit, and its bound, which none can reach: both are shown, and what
    they are computed from.
    """
    floor, bound, verdict, wanted = expected.floor, expected.bound, Verdict.OK, ""
    if bound is not None and number >= bound:
        verdict = Verdict.IMPOSSIBLE
    elif floor is not None and number < floor:
        verdict = Verdict.BELOW_FLOOR
    if expected.expected and floor and bound:
        basis = f" ({expected.basis})" if expected.basis else ""
        limits = f"at least {quantity(floor, unit)}, under {quantity(bound, unit)}"
        wanted = f"{quantity(expected.expected, unit)}{basis}, {limits}"
    return Finding(verdict=verdict, found=quantity(number, unit), expected=wanted, number=number)


def within_node(value: Json, stated: Stated) -> Finding:
    """Bus bandwidth of the largest all-reduce of the node's ranks."""
    rows = rows_of(value)
    if not rows:
        return Finding(verdict=Verdict.OK, found="one rank", expected="")
    row = max(rows, key=lambda row: number_of(row, "bytes"))
    ranks, size = int(number_of(row, "ranks")), number_of(row, "bytes")
    rate = bus_bandwidth("all_reduce", size, number_of(row, "least_s"), ranks)
    return against(rate, all_reduce(stated.gpu, 1, ranks, size), "B/s")


def _check(name: str, reader: str, evaluate: Rule, remedy: str, *, gpu_only: bool = False, unit: str = "B/s") -> Check:
    reader = f"{RATES}:{reader}"
    return Check(
        name=name, tier="perf", reader=reader, evaluate=evaluate, remedy=remedy, gpu_only=gpu_only, median=unit
    )


PERF: tuple[Check, ...] = (
    _check(
        "matmul",
        "matmul",
        slowest_rate(lambda stated, row: matmul(stated.gpu, str(dict(row).get("dtype"))), "FLOP/s"),  # type: ignore[arg-type]
        "compare clocks, power cap, temperature and other users' processes with those of a fast node",
        unit="FLOP/s",
    ),
    _check(
        "memory copy",
        "memory_copy",
        slowest_rate(lambda stated, _: memory_copy(stated.gpu)),
        "check for other users' processes, ECC errors and, on CPUs, missing memory channels",
    ),
    *(
        _check(
            f"{one} to {other}",
            f"{one}_to_{other}".lower(),
            slowest_rate(lambda *_: NOTHING),
            "check the PCIe generation and width, and the ranks' NUMA affinity",
            gpu_only=True,
        )
        for one, other in (("host", "GPU"), ("GPU", "host"))
    ),
    _check(
        "GPU pairs",
        "pairs",
        slowest_rate(lambda stated, _: pair_of_gpus(stated.gpu)),
        "drain the node: `nvidia-smi nvlink --status`, `nvidia-smi topo -m`",
        gpu_only=True,
    ),
    _check(
        "all-reduce in the node",
        "all_reduce",
        within_node,
        "drain the node: `nvidia-smi nvlink --status`; on CPUs look for other load",
    ),
)
"""all checks of the tier"""


Answer = Mapping[str, Any]
"""of one node (or of some that exchanged data): "kind", "node", what its ranks measured"""


def rates_of(answer: Answer) -> NodeReadings:
    """One node's rates as readings: each a list with a row per rank that measured it."""
    ranks = [rank for rank in answer["ranks"] if rank]
    names = list(dict.fromkeys(name for rank in ranks for name in rank))
    readings = {}
    for name in names:
        values = [rank[name] for rank in ranks if rank.get(name)]
        # An all-reduce has rows of its own, the same on every rank
        value = values[0] if values and isinstance(values[0], list) else values
        readings[f"{RATES}:{name}"] = Reading(value=value)
    problem = answer["problem"] or ("" if readings else "nothing was measured")
    return NodeReadings(node=answer["node"], readings=readings, problem=problem)


def all_rates(answers: Iterable[Answer]) -> list[NodeReadings]:
    """Each node's rates; of a node that was measured again, the better of each: load only makes one slower."""
    found: dict[str, NodeReadings] = {}
    for answer in answers:
        if answer["kind"] == "rates":
            new = rates_of(answer)
            old = found.get(new.node)
            if old is not None and not old.problem:
                best = dict(old.readings)
                for name, one in new.readings.items():
                    best[name] = max(best.get(name, one), one, key=_speed)
                new = replace(old, readings=best)
            found[new.node] = new
    return list(found.values())


def _speed(reading: Reading) -> float:
    found = rows(reading.value)
    speeds = [
        number_of(row, "per_second")
        if row.get("per_second") is not None
        else number_of(row, "bytes") / number_of(row, "least_s")
        for row in found
        if row.get("per_second") is not None or row.get("least_s") is not None
    ]
    return min(speeds, default=0.0)


def evaluate_speeds(answers: Sequence[Answer], stated: Stated) -> list[CheckResult]:
    """The tier's results; none where it was not asked for."""
    rates = all_rates(answers)
    return evaluate_all(PERF, rates, stated) if rates else []


def accused_by_speed(answers: Sequence[Answer], stated: Stated) -> list[str]:
    """The nodes that are too slow by what is known, or did not answer: measured again before they are reported."""
    found = evaluate_speeds(answers, stated)
    slow = (Verdict.BELOW_MEDIAN, Verdict.BELOW_FLOOR, Verdict.NO_ANSWER)
    return list(dict.fromkeys(one.node for one in found if one.finding.verdict in slow))


def rows(value: Json) -> list[Mapping[str, Json]]:
    """The mappings of a list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
