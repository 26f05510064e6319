"""The table of all strategies on recorded results: python -m benchmarks.search_table RESULTS.parquet [SHARE].

RESULTS comes from `sweep import` or `sweep collect`. Prints Markdown: all models, then each model replayed alone,
each also with rates off by chance, and how guided does when every part of its physics is off by a random factor.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.replay import RANDOM, InRandomOrder, replay, report, strategy_of
from sweep.foreign.files import read_recorded
from sweep.plugins import STRATEGY
from sweep.search.budget import Budget
from sweep.search.candidates import Candidates
from sweep.search.saving import RecordedRun
from sweep.search.strategies import Strategy

COLUMNS = (
    *("runs_spent", "failures_avoided_share", "successes_rejected", "cell_bests_rejected"),
    *("mean_regret", "worst_regret", "runs_to_within_2pct_share"),
)
CHANCES = 20
NOISE, NOISY = 0.01, 40
"""standard deviation of the logarithm by which rates are off, as those of repeated runs are, and trials"""


def overall(recorded: RecordedRun, strategy: str | Strategy, share: float) -> dict[str, Any]:
    runs = max(1, int(share * len(recorded.candidates)))
    asked = strategy_of(strategy) if isinstance(strategy, str) else strategy
    return report(replay(recorded, asked, Budget(runs=runs)))["overall"]


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}" if isinstance(value, float) else str(value)


def row(name: str, found: dict[str, Any]) -> str:
    return f"| {name} | " + " | ".join(shown(found[column]) for column in COLUMNS) + " |"


def by_chance(recorded: RecordedRun, share: float) -> str:
    """The mean over many random orders: a single one is not representative."""
    found = [overall(recorded, InRandomOrder(seed), share) for seed in range(CHANCES)]
    means = {name: statistics.fmean(one[name] or 0 for one in found) for name in ("mean_regret", "worst_regret")}
    return (
        f"Random, mean of {CHANCES} orders: mean regret {means['mean_regret']:.1%}, worst {means['worst_regret']:.1%}."
    )


def noisy(recorded: RecordedRun, share: float) -> str:
    """guided, with rates that are a little off by chance: whether it finds a lone best run is partly chance, too."""
    means, worst = [], []
    for seed in range(NOISY):
        off = np.exp(NOISE * np.random.default_rng(seed).standard_normal(len(recorded.candidates)))
        rates = recorded.tokens_per_second_per_gpu * off
        found = overall(replace(recorded, tokens_per_second_per_gpu=rates), "guided", share)
        means.append(found["mean_regret"])
        worst.append(found["worst_regret"])
    return (
        f"guided at {share:.0%} with rates {NOISE:.0%} off by chance, {NOISY} trials: mean regret "
        f"{np.mean(means):.2%} (its median {np.median(means):.2%}), worst cell {np.mean(worst):.1%} on average"
    )


def disturbed(recorded: RecordedRun, share: float) -> str:
    """guided, with the nominal seconds of every part multiplied by a log-normal factor of scale 0.7."""
    found = []
    for seed in range(CHANCES):
        layouts = recorded.candidates.layouts
        factors = np.exp(np.random.default_rng(seed).normal(0, 0.7, layouts.parts.shape[1]))
        wrong = replace(recorded.candidates)
        wrong.__dict__["layouts"] = replace(layouts, parts=layouts.parts * factors)
        assert isinstance(wrong, Candidates)
        found.append(overall(replace(recorded, candidates=wrong), "guided", share))
    mean, worst = (max(one[name] for one in found) for name in ("mean_regret", "worst_regret"))
    needed = [one["runs_to_within_2pct_share"] for one in found]
    most = shown(None if None in needed else max(needed))
    return (
        f"guided with every part of its physics off by a random factor (0.5 to 2 mostly), worst of {CHANCES} "
        f"trials: mean regret {mean:.2%}, worst cell {worst:.2%}, within 2 % after {most} of the runs."
    )


def main() -> None:
    path, share = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    whole = read_recorded(path)
    models = sorted({model for model, _ in whole.candidates.cell_names})
    head = "| strategy | " + " | ".join(name.removesuffix("_share").replace("_", " ") for name in COLUMNS) + " |"
    for title, recorded in [("All models", whole), *((f"{m} alone", read_recorded(path, [m])) for m in models)]:
        print(
            f"\n{title}, {len(recorded.candidates)} runs, budget {share:.0%}\n\n{head}\n|" + "---|" * (len(COLUMNS) + 1)
        )
        for name in (*STRATEGY.table, RANDOM):
            print(row(name, overall(recorded, name, share)))
        if share < 1:
            for name in ("prune", "guided"):
                print(row(f"{name}, no budget", overall(recorded, name, 1.0)))
            print(f"\n{noisy(recorded, share)}")
    print(f"\n{by_chance(whole, share)}\n\n{disturbed(whole, share)}")


if __name__ == "__main__":
    main()
