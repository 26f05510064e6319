"""Strategies on random clusters with known truth: python -m benchmarks.random_worlds [--seeds N] [--share 0.1] ...

Prints Markdown: each strategy and an oracle (it knows the noise-free rates and what cannot run, and measures with the
same noise) with the regret of the cells' winners, the cells closed before the budget, and what the search stated of its
chances. The worlds are those of `benchmarks/worlds.py`: by default the first of the 100 evaluation seeds.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.worlds import EVALUATION_SEEDS, SyntheticCluster, world
from sweep.plugins import STRATEGIES
from sweep.search.budget import Budget
from sweep.search.candidates import Bools
from sweep.search.observations import Known
from sweep.search.replay import steps
from sweep.search.strategies import Pick, Strategy, strategy_named

Floats = npt.NDArray[np.float64]
ORACLE = "oracle"
BINS = np.linspace(0, 1, 11)


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
    """One strategy in one world."""

    regrets: list[float] = field(default_factory=list)
    """per cell that has a feasible run: 1 - the winner's true rate over the best true rate that could be measured"""
    recorded_regrets: list[float] = field(default_factory=list)
    """the same by the recorded, noisy rates"""
    closed: list[bool] = field(default_factory=list)
    spent: int = 0
    runs: int = 0
    bests_rejected: int = 0
    stated: list[Floats] = field(default_factory=list)
    came_true: list[Bools] = field(default_factory=list)
    excess: list[float] = field(default_factory=list)
    """per cell, the recorded regret of a closed cell"""


def tried(made: SyntheticCluster, name: str, share: float, most_stated: int = 40, known: Known | None = None) -> Found:
    """The replay of one strategy. What it says is noted at up to ``most_stated`` steps, evenly among them.

    ``known``: nothing yet, with beliefs other than usual.
    """
    recorded, c = made.recorded, made.recorded.candidates
    strategy: Strategy = Oracle(made) if name == ORACLE else strategy_named(name)
    runs = max(1, int(share * len(c)))
    known, found = known or Known(c), Found(runs=len(c))
    every = max(1, runs // most_stated)
    for number, pick in enumerate(steps(known, recorded, strategy, Budget(runs=runs))):
        if number % every == 0 and hasattr(strategy, "chance"):
            _note(found, known, recorded, strategy, int(c.cells[pick.index]))
    found.spent = int(known.begun.sum())
    open_ = strategy.open(known, ~known.begun)
    for cell in range(len(c.cell_names)):
        _evaluate(found, made, known, np.flatnonzero(c.cells == cell), closed=not open_[c.cells == cell].any())
    return found


def _note(found: Found, known: Known, recorded: Any, strategy: Any, cell: int) -> None:
    """What the strategy says of every remaining run of the cell, and whether it would have come true."""
    rows = np.flatnonzero((recorded.candidates.cells == cell) & ~known.begun & ~known.infeasible)
    if not np.isfinite(known.best[cell]) or not len(rows):
        return
    found.stated.append(strategy.chance(known, rows, cell))
    with np.errstate(invalid="ignore"):
        better = np.log(recorded.tokens_per_second_per_gpu[rows]) > known.best[cell] + np.log1p(strategy.tolerance)
    found.came_true.append(better & recorded.worked[rows])


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


def one_world(names: Sequence[str], share: float, seed: int) -> dict[str, Found]:
    made = world(seed)
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


def statements(all_found: Sequence[Found]) -> list[str]:
    """Reliability of the stated chances of remaining runs to beat their cell's best by over the tolerance."""
    stated = np.concatenate([part for f in all_found for part in f.stated] or [np.empty(0)])
    true = np.concatenate([part for f in all_found for part in f.came_true] or [np.empty(0, dtype=bool)])
    if not len(stated):
        return []
    lines = ["| stated chance | statements | mean stated | came true |", "|---|---|---|---|"]
    for low, high in itertools.pairwise(BINS):
        mine = (stated >= low) & ((stated < high) | (high == 1))
        if mine.any():
            lines.append(
                f"| {low:.0%} to {high:.0%} | {mine.sum()} | {stated[mine].mean():.1%} | {true[mine].mean():.1%} |"
            )
    base = true.mean()
    clipped = np.clip(stated, 1e-6, 1 - 1e-6)
    score = np.where(true, np.log(clipped), np.log(1 - clipped)).mean()
    constant = base * np.log(base) + (1 - base) * np.log(1 - base)
    low = stated <= 0.05
    return [
        *lines, "",
        f"{len(stated)} statements; log score {score:.4f}, of the base rate ({base:.1%}) {constant:.4f}; of the "
        f"{low.sum()} of at most 5 % came true {true[low].mean():.2%}.",
    ]  # fmt: skip


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=len(EVALUATION_SEEDS), help="how many of them")
    parser.add_argument("--first", type=int, default=EVALUATION_SEEDS[0], help="the first of them")
    parser.add_argument("--share", type=float, default=0.1, help="budget, as a share of the runs")
    parser.add_argument("--strategies", nargs="+", default=[*STRATEGIES, ORACLE])
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    seeds = range(given.first, given.first + given.seeds)
    work = partial(one_world, given.strategies, given.share)
    if given.processes > 1:
        with ProcessPoolExecutor(given.processes) as pool:
            results = list(pool.map(work, seeds))
    else:
        results = [work(seed) for seed in seeds]
    runs = [next(iter(result.values())).runs for result in results]
    cells = sum(len(next(iter(result.values())).regrets) for result in results)
    print(f"{len(seeds)} worlds, {min(runs)} to {max(runs)} runs, {cells} cells, budget {given.share:.0%}\n")
    print("\n".join(strategies_table(results, given.strategies)))
    for name in given.strategies:
        if lines := statements([result[name] for result in results]):
            print(f"\nWhat {name} stated of its remaining runs:\n")
            print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
