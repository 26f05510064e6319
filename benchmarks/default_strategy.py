"""What the default strategy misses and spends without a budget: python -m benchmarks.default_strategy RESULTS [...]

RESULTS: the playbook's rows (`sweep import`). Each model alone and all together, in copies whose rates are off by
chance, and synthetic clusters; runs that have lost are stopped, as by default. Regret: of the cells when the strategy
has ended, by the recorded rates; on the clusters by true rates too, where `exhaustive` is not at 0, since runs are
noisy. Node time: against every run measured in full. And in how many cells a run over 3 % faster was left out, beside
the chance of it as `sweep best` states it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stopping import BETWEEN, START_S, TIMED, WARMUP, copies, spent
from benchmarks.synthetic_clusters import EVALUATION_SEEDS, synthetic_cluster
from sweep.foreign.files import read_recorded
from sweep.search.saving import RecordedRun

OVER = "over 3 % left out | as stated"


def in_full(recorded: RecordedRun) -> float:
    """Node-seconds of all runs in full; a failed one takes its start."""
    c, worked = recorded.candidates, recorded.worked
    steps_s = np.exp(c.log_tokens_per_gpu) / np.where(worked, recorded.tokens_per_second_per_gpu, 1.0)
    return float((c.nodes * (START_S + (WARMUP + TIMED) * np.where(worked, steps_s, 0.0))).sum())


Ended = tuple[list[float], list[float], list[float], float, float]
"""(regret of each cell by recorded rates, by true ones, chance stated of over 3 %, node-seconds, all in full)"""


def ended(recorded: RecordedRun, name: str, seed: int, true: Any = None) -> Ended:
    """The strategy until it ends; ``true``: rates, if not the recorded ones."""
    c, worked, rates = recorded.candidates, recorded.worked, recorded.tokens_per_second_per_gpu
    found = spent(recorded, name, stop=True, seed=seed)
    cells = [cell for cell in range(len(c.cell_names)) if (worked & (c.cells == cell)).any()]
    by = [
        [1 - (of[found.winners[k]] if k in found.winners else 0.0) / of[worked & (c.cells == k)].max() for k in cells]
        for of in (rates, rates if true is None else true)
    ]
    chances = [found.chances.get(cell, 0.0) for cell in cells]
    return by[0], by[1], chances, found.node_s + found.failed_s, in_full(recorded)


def of_cluster(name: str, seed: int) -> Ended:
    made = synthetic_cluster(seed)
    return ended(made.recorded, name, seed, made.true_rates)


def of_copy(name: str, work: tuple[RecordedRun, int]) -> Ended:
    return ended(work[0], name, work[1])


def line(title: str, name: str, found: Sequence[Ended]) -> str:
    regrets, true, chances = (np.concatenate([one[at] for one in found]) for at in (0, 1, 2))
    shares = [mine / whole for *_, mine, whole in found]
    values = [regrets.mean(), np.percentile(regrets, 99), regrets.max(), true.mean(), np.percentile(true, 99)]
    values += [(regrets > 1 - 1 / 1.03).mean(), chances.mean()]
    texts = [f"{value:.2%}" for value in values] + [f"{np.mean(shares):.3f}, {max(shares):.3f}"]
    return f"| {title} | {name} | {len(regrets):,} | {' | '.join(texts)} |"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--strategies", nargs="+", default=["guided", "prune"])
    parser.add_argument("--clusters", type=int, default=len(EVALUATION_SEEDS))
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    print(
        f"| data | strategy | cells | mean regret | 99th pct | worst | by true rates | its 99th | {OVER} | node time |"
    )
    print("|---" * 11 + "|", flush=True)
    whole = read_recorded(given.results)
    models = sorted({model for model, _ in whole.candidates.cell_names})
    parts = {"all rows": whole, **{f"{model} alone": read_recorded(given.results, [model]) for model in models}}
    with ProcessPoolExecutor(given.processes) as pool:
        for name in given.strategies:
            for title, recorded in parts.items():
                print(line(title, name, [ended(recorded, name, 0)]), flush=True)
                made = list(copies(recorded))
                found = list(pool.map(partial(of_copy, name), [(one, seed) for _, seed, one in made]))
                for noise in BETWEEN:
                    mine = [result for result, (of, _, _) in zip(found, made, strict=True) if of == noise]
                    print(line(f"{title}, {len(mine)} copies {noise:.0%} off", name, mine), flush=True)
            seeds = range(EVALUATION_SEEDS[0], EVALUATION_SEEDS[0] + given.clusters)
            print(
                line(f"{given.clusters} clusters", name, list(pool.map(partial(of_cluster, name), seeds))), flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
