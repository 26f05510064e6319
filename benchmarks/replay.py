"""A search strategy on recorded results, as if live: python -m benchmarks.replay RESULTS [--strategy S] [--budget 10%]

It sees a result only after requesting the run. RESULTS: a `results.parquet` of a sweep or of `sweep import`. Reports,
per cell and overall, runs spent, failures avoided, successes rejected, regret against the best by tokens/s/GPU, and
runs needed to come within 2 %. `--strategy all`: a line per strategy, with random order as the baseline. With `--fit
'nodes <= 2' --predict 'nodes > 2'`: how well some runs predict others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.forecast import forecast, selected
from sweep.errors import SweepError
from sweep.foreign.files import read_recorded
from sweep.plugins import STRATEGY
from sweep.search.budget import Budget
from sweep.search.candidates import Bools
from sweep.search.gaussian import Ints
from sweep.search.observations import Known
from sweep.search.saving import RecordedRun, steps
from sweep.search.strategies import Pick, Strategy, strategy_named

ALL, RANDOM = "all", "random"
NEAR = 0.02
"""distance to the best rate within which it counts as found"""


@dataclass(frozen=True)
class InRandomOrder:
    """Every run, in an order by chance: the baseline."""

    seed: int = 0

    def pick(self, known: Known, free: Bools) -> Pick | None:  # noqa: ARG002
        """The first free one of the order."""
        order = np.random.default_rng(self.seed).permutation(len(free))
        rows = order[free[order]]
        return Pick(int(rows[0]), "random order") if len(rows) else None

    def open(self, known: Known, free: Bools) -> Bools:  # noqa: ARG002
        """All."""
        return free


def strategy_of(name: str) -> Strategy:
    """Of a grid, or random order. Raises SweepError for an unknown name."""
    return InRandomOrder() if name == RANDOM else strategy_named(name)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    recorded: RecordedRun
    order: Ints
    """the requested runs, in order"""
    infeasible: Any
    """the runs ruled out at the end"""


def replay(recorded: RecordedRun, strategy: Strategy, budget: Budget) -> Replayed:
    """Run the strategy, one run after another, until it stops or the budget is spent."""
    known = Known(recorded.candidates)
    asked = [pick.index for pick in steps(known, recorded, strategy, budget)]
    return Replayed(recorded, np.array(asked, dtype=np.int64), known.infeasible)


def report(done: Replayed) -> dict[str, Any]:
    """Figures per cell and overall, as JSON values. Shares and regrets are fractions; null if undefined.

    ``regret``: 1 - best found / best recorded, by tokens/s/GPU; 1 if no success was found.
    ``runs_to_within_2pct``: runs of all cells until the cell was within 2 % of its best; null if never.
    ``successes_rejected``: successful runs that were ruled out; ``cell_bests_rejected``: cells whose best was.
    """
    recorded, c = done.recorded, done.recorded.candidates
    failures = ~recorded.worked
    cells = [_cell(done, number) for number in range(len(c.cell_names))]
    regrets = [cell["regret"] for cell in cells if cell["regret"] is not None]
    reached = [cell["runs_to_within_2pct"] for cell in cells if cell["regret"] is not None]
    whole = all(runs is not None for runs in reached) and reached
    overall = {
        "runs_total": len(c),
        "runs_spent": len(done.order),
        "failures_avoided_share": _share(int(failures.sum() - failures[done.order].sum()), int(failures.sum())),
        "successes_rejected": int((recorded.worked & done.infeasible & ~_spent(done)).sum()),
        "cell_bests_rejected": sum(cell["best_rejected"] for cell in cells),
        "mean_regret": float(np.mean(regrets)) if regrets else None,
        "worst_regret": max(regrets, default=None),
        "runs_to_within_2pct_share": max(reached) / len(c) if whole else None,
    }
    return {"overall": overall, "cells": sorted(cells, key=lambda cell: (cell["model"], cell["nodes"]))}


def _cell(done: Replayed, number: int) -> Mapping[str, Any]:
    recorded, c = done.recorded, done.recorded.candidates
    mine, spent = c.cells == number, done.order[c.cells[done.order] == number]
    worked = mine & recorded.worked
    failed = mine & ~recorded.worked
    rates = recorded.tokens_per_second_per_gpu
    best = float(rates[worked].max()) if worked.any() else None
    mine_found = rates[spent][recorded.worked[spent]]
    found = float(mine_found.max()) if len(mine_found) else None
    rejected = worked & done.infeasible & ~_spent(done)
    model, nodes = c.cell_names[number]
    return {
        "model": model,
        "nodes": nodes,
        "runs_total": int(mine.sum()),
        "runs_spent": len(spent),
        "failures_avoided_share": _share(int(failed.sum() - failed[spent].sum()), int(failed.sum())),
        "successes_rejected": int(rejected.sum()),
        "best_rejected": best is not None and not bool(((rates == best) & worked & ~rejected).any()),
        "best": best,
        "best_found": found,
        "regret": None if best is None else 1 - (found or 0.0) / best,
        "runs_to_within_2pct": _runs_to(done, number, best),
    }


def _runs_to(done: Replayed, cell: int, best: float | None) -> int | None:
    recorded, asked = done.recorded, done.order
    if best is None:
        return None
    near = recorded.worked[asked] & (recorded.tokens_per_second_per_gpu[asked] >= (1 - NEAR) * best)
    hits = np.flatnonzero(near & (recorded.candidates.cells[asked] == cell))
    return int(hits[0]) + 1 if len(hits) else None


def _spent(done: Replayed) -> Any:
    spent = np.zeros(len(done.recorded.candidates), dtype=bool)
    spent[done.order] = True
    return spent


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def replayed(recorded: RecordedRun, name: str, share: float) -> Replayed:
    """With a budget of this share of the runs."""
    return replay(recorded, strategy_of(name), Budget(runs=max(1, int(share * len(recorded.candidates)))))


def _comparison(overall: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line per strategy."""
    lines = [f"{'strategy':>12} {'spent':>6} {'mean regret':>12} {'worst':>8} {'within 2% after':>17}"]
    for name, found in overall.items():
        regrets = f"{_percent(found['mean_regret']):>12} {_percent(found['worst_regret']):>8}"
        lines.append(
            f"{name:>12} {found['runs_spent']:>6} {regrets} {_percent(found['runs_to_within_2pct_share']):>17}"
        )
    return lines


def _lines(document: dict[str, Any]) -> list[str]:
    """One strategy's report as a table."""
    head = f"{'model':>12} {'nodes':>5} {'runs':>5} {'spent':>5} {'regret':>8} {'to 2%':>6} {'rejected':>8}"
    lines = [head]
    for cell in document["cells"]:
        regret, runs = _percent(cell["regret"]), cell["runs_to_within_2pct"] or "-"
        left = f"{cell['model']:>12} {cell['nodes']:>5} {cell['runs_total']:>5} {cell['runs_spent']:>5}"
        lines.append(f"{left} {regret:>8} {runs:>6} {cell['successes_rejected']:>8}")
    overall = document["overall"]
    lines.append(f"{overall['runs_spent']} of {overall['runs_total']} runs spent")
    shares = ("failures_avoided_share", "mean_regret", "worst_regret", "runs_to_within_2pct_share")
    lines += [f"{key.replace('_', ' ')}: {_percent(overall[key])}" for key in shares]
    return lines + [f"{key.replace('_', ' ')}: {overall[key]}" for key in ("successes_rejected", "cell_bests_rejected")]


def _forecast_lines(document: dict[str, Any]) -> list[str]:
    """Errors of the predicted cells as a table."""
    names = ("mape", "median_error", "sibling_mape", "bias", "spearman", "top_1_regret", "top_3_regret")
    lines = [f"{'model':>12} {'nodes':>5} {'runs':>5} " + " ".join(f"{name.replace('_', ' '):>12}" for name in names)]
    overall = {"model": "all", "nodes": "", "runs": document["overall"]["runs_predicted"], **document["overall"]}
    for cell in [*document["cells"], overall]:
        shown = (
            f"{cell[name]:.2f}" if name == "spearman" and cell[name] is not None else _percent(cell.get(name))
            for name in names
        )
        left = f"{cell['model']:>12} {cell['nodes']:>5} {cell['runs']:>5}"
        lines.append(f"{left} " + " ".join(f"{value:>12}" for value in shown))
    return lines


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _share_of(text: str) -> float:
    return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--strategy", default="guided", help=f"or {ALL}, {RANDOM}")
    parser.add_argument("--budget", type=_share_of, default=1.0, help="runs that may be measured: 10%%, 0.1")
    parser.add_argument("--model", action="append", default=[], help="only this model's runs; repeatable")
    parser.add_argument("--fit", help="instead of a search: learn from the runs for which this holds ...")
    parser.add_argument("--predict", help="... and predict those for which this holds")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    if (given.fit is None) != (given.predict is None):
        parser.error("one of --fit and --predict without the other")
    recorded = read_recorded(given.results, given.model)
    document: dict[str, Any]
    if given.fit is not None:
        rows = (selected(recorded.candidates, text) for text in (given.fit, given.predict))
        document = forecast(recorded, *rows)
        text = _forecast_lines(document)
    elif given.strategy == ALL:
        names = (*STRATEGY.names(), RANDOM)
        document = {name: report(replayed(recorded, name, given.budget)) for name in names}
        text = _comparison({name: found["overall"] for name, found in document.items()})
    else:
        document = report(replayed(recorded, given.strategy, given.budget))
        text = _lines(document)
    print(json.dumps(document) if given.json else "\n".join(text))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SweepError as error:
        sys.exit(str(error))
