"""Which configurations are re-measured, since one run says nothing of the next: the best of each cell. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np

from sweep.physics.statistics import LEVEL, over_looks, pooled_variance, student_two_sided
from sweep.search.gaussian import Ints
from sweep.search.observations import Known

NEAR = 0.03
"""configurations within this of their cell's best are top configurations"""
LEAST = 2
"""top configurations of a cell at least: the best and its rival"""
SMALL = 8
"""repeats that a small sweep may have beyond its share, the best two of four cells; though of no more than half of
its runs"""


def top_configurations(known: Known) -> Ints:
    """The configurations, by their group of duplicates, whose median is near their cell's best; at least the best two.

    The best of each cell comes first. None whose run was stopped: it has lost.
    """
    c = known.candidates
    measured = np.flatnonzero(~np.isnan(known.log_rates) & ~known.stopped)
    found: list[int] = []
    for cell in np.unique(c.cells[measured]):
        rows = measured[c.cells[measured] == cell]
        unique, first = np.unique(c.duplicates[rows], return_index=True)
        groups = unique[np.argsort(first, kind="stable")]  # in the order of their first run
        medians = np.array([np.median(known.log_rates[rows][c.duplicates[rows] == group]) for group in groups])
        best_first = np.argsort(-medians, kind="stable")
        near = medians[best_first] >= known.best[cell] + np.log1p(-NEAR)
        near[:LEAST] = True
        found += groups[best_first[near]].tolist()
    return np.array(found, dtype=np.int64)


def room(share: float, runs: int, repeated: int = 0) -> int:
    """How many repeats may still be planned: at most this share of a sweep's runs in all, or those of a small sweep;
    none where that is less than a pair, or the share is 0. ``runs``: without such repeats; ``repeated``: how
    many of those the plan has.
    """
    most = max(int(share * runs), min(SMALL, runs // 2))
    return max(0, most - repeated) if share > 0 and most >= LEAST else 0


def to_repeat(known: Known, share: float) -> list[tuple[bool, int]]:
    """The first run of each top configuration that was measured once and has no repeat in the plan, and whether it is
    beyond the best two of its cell: those come last.

    ``share``: at most this share of a cell's measured configurations has repeats in the end, though at least two. A
    cell with one configuration has no top configurations.
    """
    c = known.candidates
    measured = np.flatnonzero(~np.isnan(known.log_rates) & ~known.stopped)
    sizes = np.bincount(c.duplicates)
    chosen: list[tuple[bool, int]] = []
    room: dict[int, int] = {}
    seen: Counter[int] = Counter()
    for group in top_configurations(known).tolist():
        rows = measured[c.duplicates[measured] == group]
        cell = int(c.cells[rows[0]])
        if cell not in room:
            room[cell] = _room(c.duplicates[measured[c.cells[measured] == cell]], sizes, share)
        seen[cell] += 1
        if sizes[group] == 1 and room[cell] > 0:
            room[cell] -= 1
            chosen.append((seen[cell] > LEAST, int(rows[0])))
    return [*sorted(chosen, key=lambda each: each[0]), *((True, row) for row in undecided(known))]


def undecided(known: Known) -> list[int]:
    """The last run of each of the best two of a cell that both have repeats, where these do not show which is faster.

    A sequential test: both get one further run until the chance of such a lead, among configurations that are equally
    fast, is below LEVEL over all looks; or until the sweep has no room for repeats. The spread is that of all repeats.
    """
    c, rates = known.candidates, known.log_rates
    runs: dict[int, list[float]] = defaultdict(list)
    measured = np.flatnonzero(~np.isnan(rates) & ~known.stopped)
    for row in measured.tolist():
        runs[int(c.duplicates[row])].append(float(rates[row]))
    variance, freedom = pooled_variance(list(runs.values()))
    best: dict[int, list[int]] = defaultdict(list)
    for group in top_configurations(known).tolist():
        best[int(c.cells[np.argmax(c.duplicates == group)])].append(group)
    found: list[int] = []
    for cell, (one, *others) in best.items():
        rows = [np.flatnonzero(c.duplicates == group) for group in (one, *others[:1])]
        looks = min(map(len, rows)) - 1
        if len(rows) < LEAST or looks < 1 or any(np.isnan(rates[mine]).any() for mine in rows):
            continue  # no rival, no repeats yet, or some have no result
        lead = np.mean(rates[rows[0]]) - np.mean(rates[rows[1]])
        error = math.sqrt(variance * sum(1 / len(mine) for mine in rows))
        rivals = len(np.unique(c.duplicates[measured[c.cells[measured] == cell]]))
        chance = rivals * student_two_sided(lead / error, freedom) / 2 if error else 0.0
        if lead <= 0 or over_looks(chance, looks) >= LEVEL:
            found += [int(mine[np.argmax(c.repeats[mine])]) for mine in rows]
    return found


def _room(groups: Ints, sizes: Ints, share: float) -> int:
    """How many more configurations of a cell may be repeated, given those of its measured runs."""
    configurations = np.unique(groups)
    if len(configurations) < LEAST:
        return 0
    return max(LEAST, int(share * len(configurations))) - int((sizes[configurations] > 1).sum())
