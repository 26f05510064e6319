"""How well the playbook's runs can be ordered at all: python -m benchmarks.accuracy --tables.

Rank correlation (Spearman), and the regret of the first run and of the first twelve (a tenth of the rows, in
turns) within its cells, of several predictors over the same runs:

- the model, before anything is measured;
- the model, if for each run it were known which of two versions of nanotron it ran, one that sleeps between looks at
  its sends and one that does not: here the one that is nearer to its measured time;
- the measured time of a run's sibling: the same layout with ZeRO 1 instead of 0, or the reverse. It is a second
  measurement, but for what the stage costs, so what it cannot foresee is hardly in the layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.reference_tables import Rows
from sweep.physics import step_time

DISTURBED = 2.5
"""a run that took this many times as long as predicted, or as its cell's best, was hardly slow by its layout"""
TURNS = 12
FEWEST_SIBLINGS = 5
"""pairs of a cell that counts"""
LAYOUT = ("dp", "tp", "pp", "micro_batch_size", "grad_accum")


def order_within(cells: Any, predicted: Any, measured: Any) -> tuple[float, float, float]:
    """(mean Spearman, mean regret of the first run, of the first ``TURNS``) over cells."""
    found = []
    for cell in np.unique(cells):
        ours, theirs = predicted[cells == cell], measured[cells == cell]
        ranks = [np.argsort(np.argsort(values)) for values in (ours, theirs)]
        first = (theirs[np.argsort(ours)[:runs]].min() for runs in (1, TURNS))
        found.append((np.corrcoef(*ranks)[0, 1], *(1 - theirs.min() / seconds for seconds in first)))
    correlation, one, several = np.mean(found, axis=0)
    return float(correlation), float(one), float(several)


def of_the_nearer_version(rows: Rows) -> Any:
    """Seconds of every run, predicted with sleeps or without, whichever is nearer to its measured time."""
    versions = [rows.assuming({"polled_from": min_nodes}) for min_nodes in (1, "no run")]
    both = np.stack([step_time.step_time_s(one.columns, one.gpu, one.profile) for one in versions])
    nearer = np.argmin(np.abs(np.log(both / rows.seconds)), axis=0)
    return np.take_along_axis(both, nearer[None], axis=0)[0]


def siblings(rows: Rows) -> Any:
    """(pairs, 2) places of runs that differ in nothing but ZeRO 0 and 1."""
    layouts: dict[tuple[Any, ...], dict[int, int]] = {}
    for place, (label, zero, *layout) in enumerate(
        zip(rows.labels, rows.columns["zero"], *(rows.columns[name] for name in LAYOUT), strict=True)
    ):
        layouts.setdefault((label, *layout), {}).setdefault(int(zero), place)
    pairs = np.array([(found[0], found[1]) for found in layouts.values() if 0 in found and 1 in found])
    cells = np.array(rows.labels)[pairs[:, 0]]
    names, counts = np.unique(cells, return_counts=True)
    return pairs[np.isin(cells, names[counts >= FEWEST_SIBLINGS])]


def lines(rows: Rows) -> Iterator[str]:
    """A Markdown table of predictors, and how far siblings are apart."""
    before = step_time.step_time_s(rows.columns, rows.gpu, rows.profile)
    cells, pairs = np.array(rows.labels), siblings(rows)
    mine, other = pairs.ravel(), pairs[:, ::-1].ravel()
    apart = np.abs(np.log(rows.seconds[pairs[:, 0]] / rows.seconds[pairs[:, 1]]))
    yield f"| predicted by | runs | Spearman | top-1 regret | top-{TURNS} regret |\n|---|---|---|---|---|"
    for name, places, values in (
        ("the model, nothing measured", np.arange(len(cells)), before),
        ("the model, if each run's version were known", np.arange(len(cells)), of_the_nearer_version(rows)),
        ("the model, nothing measured; runs with a sibling", mine, before[mine]),
        ("the sibling's measured time", mine, rows.seconds[other]),
    ):
        correlation, one, several = order_within(cells[places], values, rows.seconds[places])
        yield f"| {name} | {len(places)} | {correlation:.3f} | {one:.1%} | {several:.2%} |"
    share = (apart > np.log(DISTURBED)).mean()
    yield f"\nOf {len(pairs)} pairs of siblings {share:.0%} differ by {DISTURBED} or more."
