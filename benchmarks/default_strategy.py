"""What the default strategy misses and spends without a budget: python -m benchmarks.default_strategy RESULTS [...]

RESULTS: the playbook's rows (`sweep import`). Each model alone and all together, in copies whose rates are off by
chance, and synthetic clusters. As by default, runs that have lost are stopped, and top configurations are measured
again (`remeasure`), each repeat with noise of its own, after which the strategy goes on where these show that more is
worth a run; the rows as published have no repeats. Regret: of the cells when nothing is left, by recorded rates; and by
true ones (published ones, of copies), of the winners by their medians: `exhaustive` is not at 0 either. Node time: with
the repeats, against every run measured once in full. And in how many cells a run over 3 % faster was left out, beside
the chance of it as `sweep best` states it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.stopping import BETWEEN, Again, copies, in_full, spent
from benchmarks.synthetic_clusters import EVALUATION_SEEDS, synthetic_cluster
from sweep.foreign.files import read_recorded
from sweep.search.gaussian import Floats
from sweep.search.guided import missed
from sweep.search.saving import RecordedRun

OVER = "over 3 % left out | as stated"


Ended = tuple[list[float], list[float], list[float], float, float]
"""(regret of each cell by recorded rates, by true ones, chance stated of over 3 %, node-seconds, all in full)"""


def ended(recorded: RecordedRun, name: str, seed: int, true_rates: Floats, again: Again | None) -> Ended:
    """The strategy until it ends, with what it measures again; ``true_rates``: without the noise of a measurement."""
    c, worked, rates = recorded.candidates, recorded.worked, recorded.tokens_per_second_per_gpu
    found = spent(recorded, name, stop=True, seed=seed, again=again)
    cells = [cell for cell in range(len(c.cell_names)) if (worked & (c.cells == cell)).any()]
    by = [
        [1 - (of[winners[k]] if k in winners else 0.0) / of[worked & (c.cells == k)].max() for k in cells]
        for of, winners in ((rates, found.winners), (true_rates, found.by_median))
    ]
    assert found.known is not None
    left = np.flatnonzero(~found.known.begun)
    of_left, chances = found.known.candidates.cells[left], missed(found.known, left)[1]
    stated = [1 - float(np.prod(1 - chances[of_left == cell])) for cell in cells]
    return by[0], by[1], stated, found.node_s + found.failed_s, in_full(recorded)


def of_cluster(name: str, seed: int) -> Ended:
    made, random = synthetic_cluster(seed), np.random.default_rng([1, seed])
    return ended(made.recorded, name, seed, made.true_rates, partial(made.again, random))


def of_copy(name: str, published: RecordedRun, work: tuple[RecordedRun, float, int]) -> Ended:
    """A copy whose rates are off by so much, and whose repeats are, each by its own chance."""
    recorded, noise, seed = work
    true, random = published.tokens_per_second_per_gpu, np.random.default_rng([1, seed])
    return ended(
        recorded, name, seed, true, lambda rows: true[rows] * np.exp(noise * random.standard_normal(len(rows)))
    )


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
                published = recorded.tokens_per_second_per_gpu
                print(line(title, name, [ended(recorded, name, 0, published, None)]), flush=True)
                made = list(copies(recorded))
                found = list(
                    pool.map(partial(of_copy, name, recorded), [(one, noise, seed) for noise, seed, one in made])
                )
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
