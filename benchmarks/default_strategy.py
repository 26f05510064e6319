"""What the default strategy misses and spends without a budget: python -m benchmarks.default_strategy RESULTS [...]

RESULTS: the playbook's rows (`sweep import`). Each model alone and all together, in copies whose rates are off by
chance, and synthetic clusters; runs that have lost are stopped, as by default. Regret: of the cells when the strategy
has ended, by the recorded rates. On the clusters by true rates too, of the winners once the top configurations were
measured again, as by default (`remeasure`), each repeat with noise of its own: `exhaustive` is not at 0 either. Node
time: against every run measured in full. And in how many cells a run over 3 % faster was left out, beside the chance of
it as `sweep best` states it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.stopping import BETWEEN, START_S, TIMED, WARMUP, Spent, copies, spent
from benchmarks.synthetic_clusters import EVALUATION_SEEDS, SyntheticCluster, synthetic_cluster
from sweep.foreign.files import read_recorded
from sweep.inputs.grid import REMEASURE
from sweep.outcomes import Outcome
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.remeasure import room, to_repeat, top_configurations
from sweep.search.saving import RecordedRun

OVER = "over 3 % left out | as stated"


def in_full(recorded: RecordedRun) -> float:
    """Node-seconds of all runs in full; a failed one takes its start."""
    rates = np.where(recorded.worked, recorded.tokens_per_second_per_gpu, np.inf)
    return seconds(recorded, np.arange(len(rates)), rates)


def seconds(recorded: RecordedRun, rows: Ints, rates: Floats) -> float:
    """Node-seconds of runs in full, at these rates."""
    c = recorded.candidates
    steps_s = np.exp(c.log_tokens_per_gpu[rows]) / rates
    return float((c.nodes[rows] * (START_S + (WARMUP + TIMED) * steps_s)).sum())


Ended = tuple[list[float], list[float], list[float], float, float]
"""(regret of each cell by recorded rates, by true ones, chance stated of over 3 %, node-seconds, all in full)"""


def ended(recorded: RecordedRun, name: str, seed: int, made: SyntheticCluster | None = None) -> Ended:
    """The strategy until it ends; ``made``: of a cluster."""
    c, worked, rates = recorded.candidates, recorded.worked, recorded.tokens_per_second_per_gpu
    found = spent(recorded, name, stop=True, seed=seed)
    again = (found.winners, 0.0) if made is None else remeasured(made, found, seed)
    cells = [cell for cell in range(len(c.cell_names)) if (worked & (c.cells == cell)).any()]
    by = [
        [1 - (of[winners[k]] if k in winners else 0.0) / of[worked & (c.cells == k)].max() for k in cells]
        for of, winners in ((rates, found.winners), (rates if made is None else made.true_rates, again[0]))
    ]
    chances = [found.chances.get(cell, 0.0) for cell in cells]
    return by[0], by[1], chances, found.node_s + found.failed_s + again[1], in_full(recorded)


def remeasured(made: SyntheticCluster, found: Spent, seed: int) -> tuple[dict[int, int], float]:
    """(cell -> the run of the best median, node-seconds) once the launcher's repeats of top configurations are in."""
    c, random, runs, repeated_s = made.recorded.candidates, np.random.default_rng([1, seed]), [*found.measured], 0.0
    while True:
        rows = np.array([row for row, *_ in runs], dtype=np.int64)
        repeats = np.array([(rows[:at] == row).sum() for at, row in enumerate(rows)], dtype=np.int64)
        known = Known(replace(c.take(rows), repeats=repeats))
        for at, (_, rate, stopped) in enumerate(runs):
            known.end(at, Outcome.OK, rate, stopped=stopped)
        wanted = sorted(to_repeat(known, REMEASURE), key=lambda each: each[0])
        again = rows[[row for _, row in wanted[: room(REMEASURE, found.runs, int((repeats > 0).sum()))]]]
        if not len(again):
            break
        rates = made.again(random, again)
        repeated_s += seconds(made.recorded, again, rates)
        runs += [(row, rate, False) for row, rate in zip(again.tolist(), rates.tolist(), strict=True)]
    best = [int(rows[np.argmax(known.candidates.duplicates == group)]) for group in top_configurations(known)]
    return {int(c.cells[row]): row for row in reversed(best)}, repeated_s


def of_cluster(name: str, seed: int) -> Ended:
    made = synthetic_cluster(seed)
    return ended(made.recorded, name, seed, made)


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
