"""What stopping runs that have lost saves, and whether it changes an answer: python -m benchmarks.stopping RESULTS

RESULTS: of `sweep import` (the playbook's rows) or a sweep. Each strategy is replayed with every run measured in full;
then the same runs in the same order with `stop_slow: auto`: the node time that is kept, alone and in copies whose rates
are off by chance between runs, what would be kept if the fastest run of each cell were known before any was measured,
and the cells whose winner is another. A run takes its start, then warm-up and timed
iterations of its recorded step time, off by chance within the run. A failed one takes its start, which counts where it
is stated. Then the strategy that knows of stopped runs what they showed: its node time as a share of all runs in full,
and until every cell is within 2 % of its best. With `--clusters N`: the same strategy on synthetic clusters, and by how
much the mean regret changes. Prints Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay import strategy_of
from benchmarks.synthetic_clusters import EVALUATION_SEEDS, synthetic_cluster
from sweep.contract import SlowBound
from sweep.foreign.files import read_recorded
from sweep.inputs.grid import REMEASURE
from sweep.outcomes import Outcome
from sweep.plugins import STRATEGY
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.remeasure import room, to_repeat, top_configurations
from sweep.search.saving import RecordedRun
from sweep.search.stopping import factor

START_S, WARMUP, TIMED = 15.0, 2, 5
WITHIN = 0.02
"""standard deviation of the logarithm of an iteration's time within a run"""
BETWEEN, COPIES = (0.01, 0.05), 40
NEAR = 0.02


@dataclass
class Spent:
    """One replay."""

    node_s: float = 0.0
    """of runs that worked"""
    failed_s: float = 0.0
    """of runs that failed, each its start"""
    order: list[int] = field(default_factory=list)
    """the runs that were measured"""
    winners: dict[int, int] = field(default_factory=dict)
    """cell -> the run with the best rate of those measured in full"""
    near_s: dict[int, float] = field(default_factory=dict)
    """cell -> node time of the whole sweep until its winner was within NEAR of the best"""
    runs: int = 0
    """without what was measured again"""
    stopped: int = 0
    by_median: dict[int, int] = field(default_factory=dict)
    """cell -> the run with the best median of all that were measured in full, repeats with it"""
    known: Known | None = None
    """when the strategy has ended"""


Again = Callable[[Ints], Floats]
"""the rates that runs show when they are measured again, for each of some rows"""


class _Replay:
    """What is measured, and known of it."""

    def __init__(self, recorded: RecordedRun, *, stop: bool, seed: int) -> None:
        self._stop, self._random = stop, np.random.default_rng(seed)
        self._rows = np.arange(len(recorded.candidates))
        """of each run the recorded one: repeats follow"""
        self._original, self.recorded = recorded, recorded
        self._off = self._iterations()
        c, worked = recorded.candidates, recorded.worked
        self._target = np.zeros(len(c.cell_names))
        np.maximum.at(self._target, c.cells[worked], recorded.tokens_per_second_per_gpu[worked])
        self._best: dict[int, float] = {}
        self._timed: list[list[float]] = []
        self._limit = factor([], self._timed)
        self._ends: list[tuple[int, float, bool]] = []
        self.known, self.found = Known(recorded.candidates), Spent()

    def know_best(self) -> None:
        """Before anything is measured."""
        self._best = {cell: 1 / rate for cell, rate in enumerate(self._target.tolist()) if rate > 0}

    def _iterations(self) -> Floats:
        """A function of the run and the seed alone."""
        found: Floats = np.exp(WITHIN * self._random.standard_normal((len(self._original.candidates), WARMUP + TIMED)))
        return found

    def measure(self, index: int) -> None:
        c, rates, found = self.recorded.candidates, self.recorded.tokens_per_second_per_gpu, self.found
        cell, lost, rate, taken = int(c.cells[index]), False, rates[index], [0.0]
        worked, again = self.recorded.worked[index], c.repeats[index] > 0
        if worked:
            tokens = np.exp(c.log_tokens_per_gpu[index])
            taken = list(tokens / rate * self._off[index])
            if self._stop and cell in self._best and not again:
                own = self._best[cell] * tokens
                bound = SlowBound(step_s=own, warmup_s=(own,) * WARMUP, factor=self._limit, set_by="")
                taken, lost = _until_lost(bound, taken)
                rate = tokens / np.median(taken[WARMUP:] or taken[-1:])
            if not lost:
                self._best[cell] = min(self._best.get(cell, np.inf), 1 / rates[index])
                if self._stop:
                    self._timed.append(np.log(taken[WARMUP:]).tolist())
                    self._limit = factor([], self._timed)
                if not again and (cell not in found.winners or rates[index] > rates[found.winners[cell]]):
                    found.winners[cell] = index
        nodes = float(c.nodes[index])
        found.failed_s += 0.0 if worked else nodes * START_S
        found.node_s += nodes * (START_S + sum(taken)) if worked else 0.0
        found.runs, found.stopped = found.runs + (not again), found.stopped + lost
        found.order.append(index)
        winner = found.winners.get(cell)
        if winner is not None and cell not in found.near_s and rates[winner] >= (1 - NEAR) * self._target[cell]:
            found.near_s[cell] = found.node_s + found.failed_s
        self._ends.append((index, float(rate), lost))
        self._end(*self._ends[-1])

    def _end(self, index: int, rate: float, lost: bool) -> None:
        worked, peak = bool(self.recorded.worked[index]), float(self.recorded.peak_memory_bytes[index])
        outcome = Outcome.OK if worked else self.recorded.outcomes[index]
        self.known.end(index, outcome, rate if worked else None, peak if peak > 0 else None, stopped=lost)

    def plan_repeats(self, again: Again) -> bool:
        """Adds what the launcher would measure again by default, and returns whether there is any."""
        repeated = int((self.recorded.candidates.repeats > 0).sum())
        wanted = sorted(to_repeat(self.known, REMEASURE), key=lambda each: each[0])
        more = self._rows[[row for _, row in wanted[: room(REMEASURE, self.found.runs, repeated)]]]
        if not len(more):
            return False
        self._rows = np.concatenate([self._rows, more])
        repeats = np.array([(self._rows[:at] == row).sum() for at, row in enumerate(self._rows)], dtype=np.int64)
        was = self._original
        candidates = was.candidates.take(self._rows)
        self.recorded = RecordedRun(
            replace(candidates, repeats=np.maximum(repeats, candidates.repeats)),
            tuple(was.outcomes[row] for row in self._rows),
            np.concatenate([self.recorded.tokens_per_second_per_gpu, again(more)]),
            was.peak_memory_bytes[self._rows],
        )
        self._off = np.concatenate([self._off, self._iterations()[: len(more)]])
        self.known = Known(self.recorded.candidates)
        for end in self._ends:
            self._end(*end)
        return True

    def winners_by_median(self) -> dict[int, int]:
        """cell -> the recorded run of its best configuration."""
        c = self.known.candidates
        best = [int(self._rows[np.argmax(c.duplicates == group)]) for group in top_configurations(self.known)]
        return {int(c.cells[row]): row for row in reversed(best)}


def spent(recorded: RecordedRun, name: str, *, stop: bool, seed: int = 0, again: Again | None = None) -> Spent:
    """The strategy until it ends by itself; with ``again``, its top configurations are measured again as by default,
    and it goes on where these repeats show that more is worth a run.
    """
    strategy, replay = strategy_of(name), _Replay(recorded, stop=stop, seed=seed)
    while True:
        while (pick := strategy.pick(replay.known, ~replay.known.begun)) is not None:
            replay.measure(pick.index)
        if again is None or not replay.plan_repeats(again):
            break
    replay.found.by_median, replay.found.known = replay.winners_by_median(), replay.known
    return replay.found


def in_full(recorded: RecordedRun) -> float:
    """Node-seconds of all runs in full; a failed one takes its start."""
    c = recorded.candidates
    steps_s = np.exp(c.log_tokens_per_gpu) / np.where(recorded.worked, recorded.tokens_per_second_per_gpu, np.inf)
    return float((c.nodes * (START_S + (WARMUP + TIMED) * steps_s)).sum())


def _until_lost(bound: SlowBound, taken: list[float]) -> tuple[list[float], bool]:
    for ended in range(1, WARMUP + TIMED):
        if bound.lost(taken[: min(ended, WARMUP)], taken[WARMUP:ended]):
            return taken[:ended], True
    return taken, False


def in_order(recorded: RecordedRun, order: Sequence[int], seed: int, *, known: bool = False) -> Spent:
    """These runs, those that have lost stopped. ``known``: by the best of each cell from the first run on."""
    replay = _Replay(recorded, stop=True, seed=seed)
    if known:
        replay.know_best()
    for index in order:
        replay.measure(index)
    return replay.found


def changed(recorded: RecordedRun, name: str, seed: int) -> tuple[int, int, Spent, Spent]:
    """(cells with another winner, cells, the strategy in full, the same runs in the same order with stopping)."""
    full = spent(recorded, name, stop=False, seed=seed)
    stopping = in_order(recorded, full.order, seed)
    rates = recorded.tokens_per_second_per_gpu
    other = sum(
        cell not in stopping.winners or rates[winner] != rates[stopping.winners[cell]]
        for cell, winner in full.winners.items()
    )
    return other, len(full.winners), full, stopping


def copies(recorded: RecordedRun) -> Iterator[tuple[float, int, RecordedRun]]:
    """(noise between runs, seed, the rows with it)."""
    for noise in BETWEEN:
        for seed in range(COPIES):
            off = np.exp(noise * np.random.default_rng(seed).standard_normal(len(recorded.candidates)))
            yield noise, seed, replace(recorded, tokens_per_second_per_gpu=recorded.tokens_per_second_per_gpu * off)


def hours_until_near(found: Spent) -> str:
    """Node-hours until every cell's winner is near its best; how many never are."""
    never = len(found.winners) - len(found.near_s)
    return f"{max(found.near_s.values()) / 3600:,.1f}" + (f" ({never} cells never)" if never else "")


def of_rows(path: Path, names: Sequence[str], pool: ProcessPoolExecutor | None) -> tuple[float, int]:
    """Prints the tables. Returns the share kept in the plan's order, and all winners that changed."""
    whole = read_recorded(path)
    models = sorted({model for model, _ in whole.candidates.cell_names})
    parts = {"all rows": whole, **{f"{model} alone": read_recorded(path, [model]) for model in models}}
    shown = "node time kept | if each cell's best were known | with failed starts"
    near = "node-hours until within 2 %, in full | with stopping"
    print(f"| rows | order | {shown} | of runs stopped | of all in full | {near} |\n" + "|---" * 9 + "|")
    kept, winners = 1.0, 0
    for title, recorded in parts.items():
        for name in names:
            other, _, full, stopping = changed(recorded, name, 0)
            learning = spent(recorded, name, stop=True)
            share = stopping.node_s / full.node_s
            kept = share if (title, name) == ("all rows", names[0]) else kept
            winners += other
            with_failed = (stopping.node_s + stopping.failed_s) / (full.node_s + full.failed_s)
            least = in_order(recorded, full.order, 0, known=True).node_s / full.node_s
            of_all = (learning.node_s + learning.failed_s) / in_full(recorded)
            shares = f"{share:.3f} | {least:.3f} | {with_failed:.3f} | {stopping.stopped / stopping.runs:.0%}"
            hours = f"{hours_until_near(full)} | {hours_until_near(learning)}"
            print(f"| {title} | {name} | {shares} | {of_all:.3f} | {hours} |", flush=True)
    print(
        "\n| rows | order | noise between runs | node time kept, mean and most | winners changed |\n" + "|---" * 5 + "|"
    )
    for title, recorded in parts.items():
        made = list(copies(recorded))
        for name in names:
            work = [(one, name, seed) for _, seed, one in made]
            found = list((pool.map if pool else map)(_of_copy, work))
            for noise in BETWEEN:
                mine = [result for result, (of, _, _) in zip(found, made, strict=True) if of == noise]
                shares, others = [share for share, *_ in mine], sum(other for _, other, _ in mine)
                winners += others
                cells = sum(cells for *_, cells in mine)
                share = f"{np.mean(shares):.3f}, {max(shares):.3f}"
                print(f"| {title} | {name} | {noise:.0%} | {share} | {others} of {cells} |", flush=True)
    return kept, winners


def _of_copy(work: tuple[RecordedRun, str, int]) -> tuple[float, int, int]:
    """(share of node time kept, cells with another winner, cells)."""
    other, cells, full, stopping = changed(*work)
    return stopping.node_s / full.node_s, other, cells


def of_cluster(names: Sequence[str], seed: int) -> dict[str, Any]:
    """strategy -> (true regrets in full, with stopping, share of node time kept)."""
    made = synthetic_cluster(seed)
    c, worked = made.recorded.candidates, made.recorded.worked
    found = {}
    for name in names:
        regrets: list[list[float]] = []
        both = [spent(made.recorded, name, stop=stop, seed=seed) for stop in (False, True)]
        for one in both:
            cells = [cell for cell in range(len(c.cell_names)) if (worked & (c.cells == cell)).any()]
            most = {cell: made.true_rates[worked & (c.cells == cell)].max() for cell in cells}
            lost = [
                1 - made.true_rates[one.winners[cell]] / most[cell] if cell in one.winners else 1.0 for cell in cells
            ]
            regrets.append(lost)
        found[name] = (*regrets, both[1].node_s / both[0].node_s)
    return found


def of_clusters(names: Sequence[str], number: int, pool: ProcessPoolExecutor | None) -> None:
    """Prints the table of synthetic clusters."""
    seeds = range(EVALUATION_SEEDS[0], EVALUATION_SEEDS[0] + number)
    results = list((pool.map if pool else map)(partial(of_cluster, names), seeds))
    print(f"\n{number} synthetic clusters\n\n| order | node time kept | mean regret in full | with stopping | change |")
    print("|---|---|---|---|---|")
    for name in names:
        full, stopping = (np.concatenate([result[name][i] for result in results]) for i in (0, 1))
        by_cluster = np.array([np.mean(result[name][1]) - np.mean(result[name][0]) for result in results])
        error = by_cluster.std(ddof=1) / np.sqrt(len(by_cluster))
        kept = np.mean([result[name][2] for result in results])
        change = f"{by_cluster.mean():+.3%} ± {error:.3%}"
        print(f"| {name} | {kept:.3f} | {full.mean():.3%} | {stopping.mean():.3%} | {change} |")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGY.table))
    parser.add_argument("--clusters", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args(argv)
    pool = ProcessPoolExecutor(given.processes) if given.processes > 1 else None
    if given.clusters:
        of_clusters(given.strategies, given.clusters, pool)
    kept, winners = of_rows(given.results, given.strategies, pool)
    print(f"\nnode time kept: {kept:.3f} (plan order, all rows), winners changed: {winners}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
