"""How sure it is that a cell's best configuration is the fastest: within a run, and between runs. Pure.

The iterations of one run share its start, its nodes and its neighbours: their interval says nothing of how another run
of the same configuration would do. Only repeats do. Their spread is pooled over all repeated configurations of the
records (the standard deviation of logarithms), and the lead over each rival is tested with Student's t. Which one is
the best was not known before: any of n configurations that are equally fast may lead all others by chance, so the
chance is multiplied by n (Bonferroni). Repeats go on until the order of the best two is decided
(``sweep.search.remeasure.undecided``), so it also counts how often was looked (``over_looks``).

The test takes runs as independent. On a host with more work than cores they are not: such load comes in spells, which
may slow both repeats of one configuration and neither of another. In a simulation of two equal configurations, each
run slowed by half or not at the toss of a coin, the test alone called one clear in 12 % of cases. There nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.metrics import Metric
from analysis.tables import items_of
from sweep.physics.statistics import LEVEL, over_looks, student_two_sided

if TYPE_CHECKING:
    import pandas as pd


def run_spread(rows: pd.DataFrame, key: pd.Series[int]) -> tuple[float, int]:
    """(standard deviation of a run's logarithm between repeats, its degrees of freedom); NaN and 0 without repeats."""
    logs = np.log(rows["value"].astype(float).where(lambda value: value > 0))
    groups = logs.groupby(key)
    freedom = int((groups.count() - 1).clip(lower=0).sum())
    if freedom == 0:
        return math.nan, 0
    squares = float(((logs - groups.transform("mean")) ** 2).sum())
    return math.sqrt(squares / freedom), freedom


def least_lead(best: pd.DataFrame, rest: pd.DataFrame, metric: Metric, cell: list[str]) -> pd.Series[float]:
    """The best's smallest lead over a rival of its cell, as a logarithm, in units of one run's spread."""
    own = best.loc[rest.set_index(cell).index]
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = metric.better * np.log(own["value"].to_numpy(float) / rest["value"].to_numpy(float))
        lead = gain / np.sqrt(1 / own["repeats"].to_numpy(float) + 1 / rest["repeats"].to_numpy(float))
    return rest[cell].assign(lead=lead).groupby(cell)["lead"].min()


def verdict(cell: Mapping[str, Any], metric: Metric) -> tuple[str, str]:
    """(clear, tie, alone, leads or unknown; the sentence) of a row of ``analysis.derive.best.best_per_cell``."""
    rivals = int(cell["configurations"]) - 1
    tied = len(items_of(cell.get("ties")))
    lead = lead_of(cell, metric)
    ahead = "–" if lead is None else f"{lead:.1%}"
    if rivals == 0:
        same_work = " of its sequence length and GPU" if cell.get("of_other_work") else ""
        return "alone", f"the only configuration{same_work} that was measured here"
    if rivals == cell.get("stopped_rivals"):
        return "leads", f"the others, {rivals}, had lost and were stopped: how far they are behind is not known"
    if tied:
        others = "one other configuration" if tied == 1 else f"{tied} other configurations"
        return "tie", f"within noise of {others}; {ahead} ahead of the second"
    if not float(cell["high"]) > float(cell["low"]) and int(cell["repeats"]) < 2:
        return "unknown", f"leads by {ahead}; the spread of its iterations is not known"
    if min(int(cell["repeats"]), int(cell["runner_up_repeats"])) < 2 or not cell["spread_freedom"]:
        return "leads", f"leads by {ahead} within one run; the spread between runs is unknown"
    spread, freedom = float(cell["run_spread"]), int(cell["spread_freedom"])
    if not spread > 0:
        return "leads", f"leads by {ahead}; the repeats' figures are equal, so they do not show how much runs differ"
    looks = min(int(cell["repeats"]), int(cell["runner_up_repeats"])) - 1  # repeats go on until they decide
    chance = over_looks(chance_of(float(cell["least_lead"]), spread, freedom, rivals), looks)
    runs = f"{int(cell['repeats'])} and {int(cell['runner_up_repeats'])} runs"
    if chance >= LEVEL:
        by_chance = f"if all were equally fast, one would in {chance:.0%} of cases (clear: under {LEVEL:.0%})"
        return "leads", f"leads by {ahead}; {by_chance}: runs differ by {spread:.1%} ({runs})"
    between = f"the spread between runs of {spread:.1%} ({runs})"
    if oversubscribed := int(cell["oversubscribed_runs"]):
        disturbed = f"in {oversubscribed} run{'s' * (oversubscribed > 1)} the host had more work than cores"
        return "leads", f"leads by {ahead}, beyond {between}; not clear: {disturbed}"
    return "clear", f"{ahead} ahead of the second of {rivals + 1}, beyond {between}"


def chance_of(lead: float, spread: float, freedom: int, rivals: int) -> float:
    """The chance that one leads all rivals by that much if all are equally fast; ``lead`` as by ``least_lead``."""
    if not lead > 0:
        return 1.0
    one_sided = student_two_sided(lead / spread if spread > 0 else math.inf, freedom) / 2
    return min(1.0, (rivals + 1) * one_sided)


def lead_of(cell: Mapping[str, Any], metric: Metric) -> float | None:
    """The lead of the best over the second, as a fraction of the second; None where there is no second."""
    best, second = float(cell["value"]), cell.get("runner_up")
    if second is None or not float(second) > 0 or not best > 0:
        return None
    ratio = best / float(second) if metric.better == 1 else float(second) / best
    return max(0.0, ratio - 1)
