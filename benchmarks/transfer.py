"""What small cells teach about large ones: python -m benchmarks.transfer [--worlds N] [--processes P]

The guided search on the worlds of `benchmarks/worlds.py` whose grids have several node counts, with `transfer: true`
and `transfer: false`. Large cells have more nodes than the median cell of their world. Prints Markdown: the mean regret
of the large cells after each share of their runs, and the share that each needs for the same regret.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.worlds import EVALUATION_SEEDS, SyntheticCluster, world
from sweep.search.budget import Budget
from sweep.search.guided import Guided
from sweep.search.observations import Known
from sweep.search.replay import steps

Floats = npt.NDArray[np.float64]
SHARES = np.arange(1, 41) / 200
"""of the large cells' runs"""
SHOWN = (0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2)


def large_cells(made: SyntheticCluster) -> npt.NDArray[np.int64]:
    """Cells with more nodes than the median cell, in which a run works."""
    c = made.recorded.candidates
    nodes = np.array([nodes for _, nodes in c.cell_names])
    works = np.unique(c.cells[made.recorded.worked])
    found: npt.NDArray[np.int64] = np.intersect1d(np.flatnonzero(nodes > np.median(nodes)), works)
    return found


def regrets(made: SyntheticCluster, *, transfer: bool, most: float) -> Floats:
    """Mean true regret of the large cells' winners after 0, 1, 2, … of their runs, to the share ``most`` of them."""
    recorded = replace(made.recorded, candidates=replace(made.recorded.candidates, transfer=transfer))
    c, large = recorded.candidates, large_cells(made)
    rates = np.where(recorded.worked, recorded.tokens_per_second_per_gpu, 0.0)
    true = np.where(recorded.worked, made.true_rates, 0.0)
    best = np.array([true[c.cells == cell].max() for cell in large])
    found = dict.fromkeys(large.tolist(), -1)
    limit, curve = int(np.ceil(most * np.isin(c.cells, large).sum())), [1.0]
    for pick in steps(Known(c), recorded, Guided(), Budget()):
        cell = int(c.cells[pick.index])
        if cell not in found:
            continue
        if rates[pick.index] > (rates[found[cell]] if found[cell] >= 0 else 0.0):
            found[cell] = pick.index
        reached = np.array([true[index] if index >= 0 else 0.0 for index in found.values()])
        curve.append(float((1 - reached / best).mean()))
        if len(curve) > limit:
            break
    return np.array(curve)


def curves(seed: int) -> tuple[Floats, Floats] | None:
    """At each of SHARES, the regret with and without transfer; None if the world has no large cells."""
    made = world(seed)
    large = large_cells(made)
    if not len(large):
        return None
    runs = int(np.isin(made.recorded.candidates.cells, large).sum())
    at = np.ceil(SHARES * runs).astype(np.int64)
    with_, without = (regrets(made, transfer=transfer, most=float(SHARES[-1])) for transfer in (True, False))
    # A search that stopped earlier keeps what it found.
    return with_[np.minimum(at, len(with_) - 1)], without[np.minimum(at, len(without) - 1)]


def needed(curve: Floats, regret: float) -> float | None:
    """The first of SHARES at which the regret is no greater."""
    enough = np.flatnonzero(curve <= regret)
    return float(SHARES[int(enough[0])]) if len(enough) else None


def table(with_: Floats, without: Floats) -> list[str]:
    """``with_``, ``without``: mean regrets at SHARES."""

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    head = ("share of large-node runs", "regret with transfer", "without", "with transfer the latter needs")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    places = [int(np.flatnonzero(np.isclose(SHARES, at))[0]) for at in SHOWN]
    rows = ((SHARES[i], float(with_[i]), float(without[i])) for i in places)
    return lines + [f"| {at:.1%} | {a:.2%} | {b:.2%} | {share(needed(with_, b))} |" for at, a, b in rows]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=len(EVALUATION_SEEDS), help="the first so many seeds")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    with ProcessPoolExecutor(given.processes) as pool:
        found: list[Any] = [one for one in pool.map(curves, EVALUATION_SEEDS[: given.worlds]) if one is not None]
    with_, without = (np.mean([one[side] for one in found], axis=0) for side in (0, 1))
    print(f"{len(found)} of {given.worlds} worlds have large cells\n")
    print("\n".join(table(with_, without)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
