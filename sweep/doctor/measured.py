"""Measured rates of a run, as the file of measured rates has them: of fit nodes only, the slowest."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from sweep.checks.check import Json
from sweep.checks.pairs import Exchange, best_rates
from sweep.checks.rules import number_of
from sweep.checks.speeds import Answer, all_rates, rows
from sweep.doctor.evaluation import exchanges_of
from sweep.files import write_whole
from sweep.physics.measured import KINDS, LEVELS, Level, MeasuredCollective, MeasuredRates

LEAST_SPREAD = 0.01
"""two measurements of one node differ by as much: docs/research/measurement.md"""
HEADER = "# Written by `sweep doctor`: what was measured on these nodes. Plans use it instead of data sheets.\n"


def measured_rates(answers: Sequence[Answer], unfit: Iterable[str], at: float) -> MeasuredRates | None:
    """What the run measured on its fit nodes; None: nothing."""
    left_out = set(unfit)
    nodes = [one for one in all_rates(answers) if not one.problem and one.node not in left_out]
    values = [{reader.rpartition(":")[2]: reading.value for reader, reading in one.readings.items()} for one in nodes]
    exchanges = [one for one in exchanges_of(answers) if one.rows and not left_out & set(one.nodes)]
    speeds, copies, inside = (_slowest(values, name) for name in ("matmul", "memory_copy", "pairs"))
    levels = {name: _sent([one for one in exchanges if one.level == name]) for name in LEVELS}
    inside_nodes = [row for found in values for row in rows(found.get("all_reduce"))]
    between = [(one, row) for one in exchanges for row in one.rows if row.get("operation") in KINDS]
    collectives = [_collective("all_reduce", 1, row) for row in inside_nodes]
    collectives += [_collective(str(row["operation"]), len(one.nodes), row, one.level) for one, row in between]
    if not speeds and not collectives and _sent(exchanges) is None:
        return None
    dtypes = {str(row.get("dtype")) for found in values for row in rows(found.get("matmul"))}
    return MeasuredRates(
        date=time.strftime("%Y-%m-%d", time.localtime(at)),
        nodes=tuple(sorted({one.node for one in nodes} | {node for one in exchanges for node in one.nodes})),
        matmul_flops={dtype: min(speeds) for dtype in dtypes} if speeds else {},
        memory_bytes_per_s=min(copies, default=None),
        inside_bytes_per_s=min(inside, default=None),
        between_bytes_per_s=_sent([one for one in exchanges if one.level != LEVELS[0]]),
        levels_bytes_per_s={name: rate for name, rate in levels.items() if rate is not None},
        collectives=tuple(_medians(collectives)),
        spread=_spread(speeds),
    )


def write_measured(rates: MeasuredRates, path: Path) -> None:
    """Write the file, whole: rates of another day or other nodes are not kept with these."""
    values = {k: v for k, v in asdict(rates).items() if v not in (None, (), {})}
    values["nodes"] = list(rates.nodes)
    values["collectives"] = [asdict(one) for one in rates.collectives]
    write_whole(path, HEADER + yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=120))


def _slowest(values: Sequence[Mapping[str, Json]], name: str) -> list[float]:
    """The rate of each node's slowest rank, of the nodes that measured it."""
    of_nodes = ([row for row in rows(found.get(name)) if row.get("per_second") is not None] for found in values)
    return [min(number_of(row, "per_second") for row in ranks) for ranks in of_nodes if ranks]


def _sent(exchanges: Sequence[Exchange]) -> float | None:
    return statistics.median(sends) if (sends := [r for r in best_rates(exchanges, "send").values() if r]) else None


def _collective(kind: str, nodes: int, row: Mapping[str, Json], level: Level = "") -> MeasuredCollective:
    return MeasuredCollective(
        kind=kind,
        nodes=nodes,
        ranks=int(number_of(row, "ranks")),
        bytes=int(number_of(row, "bytes")),
        seconds=number_of(row, "seconds"),
        spread=min(2.0, max(LEAST_SPREAD, number_of(row, "spread"))),
        level=level,
    )


def _medians(found: Sequence[MeasuredCollective]) -> list[MeasuredCollective]:
    """One of each kind, width, size and level: the median of the groups, and how far they are apart."""
    same: dict[tuple[str, int, int, int, str], list[MeasuredCollective]] = {}
    for one in found:
        same.setdefault((one.kind, one.nodes, one.ranks, one.bytes, one.level), []).append(one)
    return [
        replace(
            group[0],
            seconds=statistics.median(one.seconds for one in group),
            spread=max(_spread([one.seconds for one in group]), statistics.median(one.spread for one in group)),
        )
        for group in same.values()
    ]


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.05
    return min(2.0, max(LEAST_SPREAD, statistics.stdev(math.log(value) for value in values)))
