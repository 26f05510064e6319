"""Strategies on synthetic clusters: python -m benchmarks.strategies_compared [--seeds N] [--share 0.1] ...

Prints Markdown: each strategy and an oracle (it knows the noise-free rates and what cannot run, and measures with the
same noise) with the regret of the cells' winners and the cells closed before the budget. The clusters are those of
`benchmarks/synthetic_clusters.py`: by default the first of the 100 evaluation seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.replay import RANDOM, strategy_of
from benchmarks.synthetic_clusters import EVALUATION_SEEDS, SyntheticCluster, synthetic_cluster
from sweep.plugins import STRATEGY
from sweep.search.budget import Budget
from sweep.search.candidates import Bools
from sweep.search.observations import Known
from sweep.search.saving import steps
from sweep.search.strategies import Pick, Strategy

Floats = npt.NDArray[np.float64]
ORACLE = "oracle"


@dataclass(frozen=True)
class Oracle:
    """Every cell's runs by their true rates, cells in turn; runs that cannot work are never asked for."""

    made: SyntheticCluster

    def pick(self, known: Known, free: Bools) -> Pick | None:
        open_ = np.flatnonzero(self.open(known, free))
        if not len(open_):
            return None
        cells = known.candidates.cells[open_]
        mine = open_[cells == cells[int(np.argmin(known.tries[cells]))]]
        return Pick(int(mine[int(np.argmax(self.made.true_rates[mine]))]), "the fastest")

    def open(self, known: Known, free: Bools) -> Bools:  # noqa: ARG002
        return free & ~self.made.doomed


@dataclass
class Found:
    """One strategy on one cluster."""

    regrets: list[float] = field(default_factory=list)
    """per cell that has a feasible run: 1 - the winner's true rate over the best true rate that could be measured"""
    recorded_regrets: list[float] = field(default_factory=list)
    """the same by the recorded, noisy rates"""
    closed: list[bool] = field(default_factory=list)
    spent: int = 0
    runs: int = 0
    bests_rejected: int = 0
    excess: list[float] = field(default_factory=list)
    """per cell, the recorded regret of a closed cell"""


def tried(made: SyntheticCluster, name: str, share: float) -> Found:
    """The replay of one strategy."""
    recorded, c = made.recorded, made.recorded.candidates
    strategy: Strategy = Oracle(made) if name == ORACLE else strategy_of(name)
    known, found = Known(c), Found(runs=len(c))
    for _ in steps(known, recorded, strategy, Budget(runs=max(1, int(share * len(c))))):
        pass
    found.spent = int(known.begun.sum())
    open_ = strategy.open(known, ~known.begun)
    for cell in range(len(c.cell_names)):
        _evaluate(found, made, known, np.flatnonzero(c.cells == cell), closed=not open_[c.cells == cell].any())
    return found


def _evaluate(found: Found, made: SyntheticCluster, known: Known, rows: Any, *, closed: bool) -> None:
    worked = rows[made.recorded.worked[rows]]
    if not len(worked):
        return
    rates, true = made.recorded.tokens_per_second_per_gpu, made.true_rates
    mine = worked[known.begun[worked]]
    winner = int(mine[int(np.argmax(rates[mine]))]) if len(mine) else None
    found.regrets.append(1.0 if winner is None else float(1 - true[winner] / true[worked].max()))
    found.recorded_regrets.append(1.0 if winner is None else float(1 - rates[winner] / rates[worked].max()))
    found.closed.append(closed)
    if closed:
        found.excess.append(found.recorded_regrets[-1])
    best = worked[int(np.argmax(rates[worked]))]
    found.bests_rejected += bool(known.infeasible[best] and not known.begun[best])


def one_cluster(names: Sequence[str], share: float, seed: int) -> dict[str, Found]:
    made = synthetic_cluster(seed)
    return {name: tried(made, name, share) for name in names}


def _row(name: str, all_found: Sequence[Found]) -> str:
    regrets, recorded = (
        np.concatenate([getattr(f, key) for f in all_found]) for key in ("regrets", "recorded_regrets")
    )
    closed = np.concatenate([f.closed for f in all_found])
    excess = [value for f in all_found for value in f.excess]
    spent = sum(f.spent for f in all_found) / sum(f.runs for f in all_found)
    columns = [
        f"{spent:.1%}", f"{regrets.mean():.2%}", f"{np.percentile(regrets, 95):.2%}", f"{regrets.max():.1%}",
        f"{recorded.mean():.2%}", f"{np.percentile(recorded, 95):.2%}", f"{closed.mean():.0%}",
        f"{np.mean(excess):.2%}" if excess else "-", str(sum(f.bests_rejected for f in all_found)),
    ]  # fmt: skip
    return f"| {name} | " + " | ".join(columns) + " |"


def strategies_table(results: Sequence[dict[str, Found]], names: Sequence[str]) -> list[str]:
    head = ("strategy", "runs spent", "mean regret", "95th pct", "worst", "mean by noisy rates", "its 95th pct",
            "cells closed", "regret of closed", "cell bests rejected")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return lines + [_row(name, [result[name] for result in results]) for name in names]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(EVALUATION_SEEDS), help="how many of them")
    parser.add_argument("--first", type=int, default=EVALUATION_SEEDS[0], help="the first of them")
    parser.add_argument("--share", type=float, default=0.1, help="budget, as a share of the runs")
    parser.add_argument("--strategies", nargs="+", default=[*STRATEGY.table, RANDOM, ORACLE])
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    seeds = range(given.first, given.first + given.seeds)
    work = partial(one_cluster, given.strategies, given.share)
    if given.processes > 1:
        with ProcessPoolExecutor(given.processes) as pool:
            results = list(pool.map(work, seeds))
    else:
        results = [work(seed) for seed in seeds]
    runs = [next(iter(result.values())).runs for result in results]
    cells = sum(len(next(iter(result.values())).regrets) for result in results)
    print(f"{len(seeds)} clusters, {min(runs)} to {max(runs)} runs, {cells} cells, budget {given.share:.0%}\n")
    print("\n".join(strategies_table(results, given.strategies)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
