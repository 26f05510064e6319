"""Errors and intervals of predicted step times by (trainer, kind of model, GPU, dtype), next to other models on the
same rows. Rows of one trainer, GPU and dtype err in common: their means are what a user of that trainer meets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from benchmarks.reference_tables import Rows, Table
from sweep.physics import step_time
from sweep.physics.columns import read
from sweep.physics.prediction import describe

HALF, MOST = (NormalDist().inv_cdf(share) for share in (0.75, 0.95))
ENOUGH_ROWS = 15
"""a share of fewer rows says little of an interval"""


def mape(log: Any) -> float:
    return float(np.abs(np.exp(log) - 1).mean())


def bias(log: Any) -> float:
    return float(np.exp(log).mean() - 1)


@dataclass(frozen=True)
class SubTable:
    """Rows of one trainer, kind of model, GPU and dtype, of all tables."""

    key: tuple[str, str, str, str]
    log: Any
    """predicted over measured seconds"""
    off: Any
    """(measured - predicted) over the predicted standard deviation, of logarithms"""
    peers: Mapping[str, Any]
    """peer -> logarithm of its seconds over the measured ones; nan where it cannot express a row"""

    @property
    def wrong(self) -> bool:
        """Over 15 % with a bias of about the same size."""
        return mape(self.log) > 0.15 and abs(bias(self.log)) > 0.10


def kind_of(rows: Rows) -> Any:
    """Of each row: dense, experts or adapters."""
    experts = np.broadcast_to(rows.columns["num_experts"], rows.seconds.shape) > 0
    return np.where(experts, "experts", "adapters" if rows.profile.frozen_weights else "dense")


def sub_tables(
    found: list[Table], peers: Mapping[str, Callable[[Rows], Any]] | None = None
) -> dict[tuple[str, str, str, str], SubTable]:
    """All rows of all tables, sorted into sub-tables."""
    parts: dict[tuple[str, str, str, str], list[tuple[Any, ...]]] = {}
    for table in found:
        for rows in table.rows:
            log = np.log(step_time.step_time_s(rows.columns, rows.gpu, rows.profile) / rows.seconds)
            log = np.broadcast_to(log, rows.seconds.shape)
            off = -log / describe(rows.columns, rows.gpu, rows.profile).prior_sd
            theirs = [np.log(of(rows) / rows.seconds) for of in (peers or {}).values()]
            kinds, dtypes = kind_of(rows), np.broadcast_to(read(rows.columns, "dtype"), rows.seconds.shape)
            for kind, dtype in dict.fromkeys(zip(kinds.tolist(), dtypes.tolist(), strict=True)):
                mine = (kinds == kind) & (dtypes == dtype)
                key = (table.trainer, kind, rows.gpu.name, dtype)
                parts.setdefault(key, []).append((log[mine], off[mine], *(one[mine] for one in theirs)))
    return {
        key: SubTable(key, *joined[:2], dict(zip(peers or {}, joined[2:], strict=True)))
        for key, several in sorted(parts.items())
        for joined in [[np.concatenate(one) for one in zip(*several, strict=True)]]
    }


def lines(found: Mapping[Any, SubTable]) -> Iterator[str]:
    """A Markdown table, the whole of all rows last."""
    names = list(next(iter(found.values())).peers)
    yield "| trainer | model | GPU | dtype | rows | MAPE | bias | in 50 % | in 90 % | remark |" + "".join(
        f" {name} | sweep, rows of {name} |" for name in names
    )
    yield "|---" * (10 + 2 * len(names)) + "|"
    for one in found.values():
        size = np.abs(one.off)
        remark = "wrong" if one.wrong else ""
        if len(size) >= ENOUGH_ROWS and not 0.8 <= (size < MOST).mean() <= 0.97:
            remark += ", interval" if remark else "interval"
        yield (
            f"| {' | '.join(one.key)} | {len(size)} | {mape(one.log):.1%} | {bias(one.log):+.0%} | "
            f"{(size < HALF).mean():.0%} | {(size < MOST).mean():.0%} | {remark} |" + _peers(one)
        )
    size = np.abs(np.concatenate([one.off for one in found.values()]))
    log = np.concatenate([one.log for one in found.values()])
    yield (
        f"| all | | | | {len(size)} | {mape(log):.1%} | {bias(log):+.0%} | {(size < HALF).mean():.0%} | "
        f"{(size < MOST).mean():.0%} | |" + " | |" * len(names)
    )


def _peers(one: SubTable) -> str:
    cells = []
    for theirs in one.peers.values():
        known = np.isfinite(theirs)
        cells += [f"{mape(theirs[known]):.1%}", f"{mape(one.log[known]):.1%}"] if known.any() else ["-", "-"]
    return "".join(f" {cell} |" for cell in cells)
