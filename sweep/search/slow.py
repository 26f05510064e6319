"""Which part of the machine makes runs slow: a node, or the NVLink domain or switch that it is in. Pure.

A generalised least squares fit of one factor per unit to the errors of all measured runs, as the fit of step times
expects them to vary together: runs elsewhere say how long those on the unit should have taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sweep.physics.statistics import FAR, LEAST_FACTOR, MAD_FACTOR
from sweep.search.gaussian import Floats
from sweep.search.posterior import Errors
from sweep.state.blame import MOST_BY_CHANCE, level

NOWHERE: frozenset[str] = frozenset()
NOISES = (0.0, 0.05, 0.1, 0.2)
"""by how much more (log) runs of one configuration may differ than the fit of step times has it: the likeliest"""
ROUNDS, PASSES = 3, 20
"""of the fit: errors are far by how they spread about what the best unit explains; of each, over the runs"""
LEAST = 1e-9
"""share of the errors that any unit leaves unexplained"""


@dataclass(frozen=True)
class Slow:
    """A unit whose runs are slow, and by how much."""

    unit: str
    nodes: frozenset[str]
    factor: float
    """times as long as elsewhere"""
    there: int
    runs: int
    """of so many measured runs"""
    chance: float
    """of as much, if runs were slow wherever they are"""

    def __str__(self) -> str:
        return (
            f"{self.there} of {self.runs} runs were on {self.unit} and took {self.factor:.2f} times as long as those "
            f"elsewhere let expect; by chance in 1 of {1 / max(self.chance, MOST_BY_CHANCE**9):,.0f}"
        )


def slowed(errors: Errors, on: Sequence[frozenset[str]], units: Mapping[str, frozenset[str]]) -> Slow | None:
    """The unit that explains best why runs are slow. None where that may be by chance, in this or an earlier look at
    any unit; where another may explain it; and where runs of one configuration are taken to differ by as much.

    ``on``: the nodes of each run. One on a single node uses no link: it counts as elsewhere.
    """
    several = [nodes if len(nodes) > 1 else NOWHERE for nodes in on]
    touched = {name: [not nodes.isdisjoint(some) for some in several] for name, nodes in units.items()}
    names = sorted((name for name, runs in touched.items() if any(runs)), key=lambda name: len(units[name]))
    if not names or not errors.late.any():
        return None
    there, likely, best = np.array([touched[name] for name in names], dtype=np.float64), -math.inf, None
    rates, axes = np.linalg.eigh(errors.inverse)
    for noise in NOISES:
        noisier = np.maximum(rates, LEAST) / (1 + noise**2 * np.maximum(rates, LEAST))
        costs, effects = _robust(errors.late, there, _within_widths((axes * noisier) @ axes.T, on))
        cost = max(float(costs[:-1].sum(axis=1).min()), LEAST)
        if (likelihood := float(np.log(noisier).sum()) - len(on) * math.log(cost)) > likely:
            likely, best = likelihood, (costs, effects)
    assert best is not None
    return _sure(*best, there, names, units, errors.fits)


def _sure(
    costs: Floats, effects: Floats, there: Floats, names: Sequence[str], units: Mapping[str, frozenset[str]], fits: int
) -> Slow | None:
    """The unit that leaves least of the errors unexplained, if that is neither chance nor another's: by more than any
    single run says, which may be disturbed.
    """
    total, number = np.maximum(costs.sum(axis=1), LEAST), there.shape[1]
    best = int(np.argmin(total[:-1]))
    runs, share = int(there[best].sum()), min(1.0, float(total[best] / total[-1]))
    chance = max(math.erfc(math.sqrt((1 - share) * number / 2)) / 2, 1 / math.comb(number, runs))
    others = np.delete(total - (costs - costs[best]).max(axis=1), best)
    likelier = number / 2 * math.log(max(others.min(), LEAST) / total[best])
    sure = chance <= level(units, fits) and likelier >= math.log(len(units) / MOST_BY_CHANCE)
    if not sure or effects[best] < math.log(LEAST_FACTOR):
        return None
    return Slow(names[best], units[names[best]], math.exp(effects[best]), runs, number, chance)


def _robust(late: Floats, there: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """As ``_explained``: an error counts as far by how the others spread about what the best unit explains."""
    effect = np.zeros(len(late))
    for _ in range(ROUNDS):
        spread = MAD_FACTOR * float(np.median(np.abs(_alone(late - effect, inverse))))
        costs, effects = _explained(late, there, inverse, FAR * max(spread, math.log(LEAST_FACTOR)))
        effect = effects[best := int(np.argmin(costs[:-1].sum(axis=1)))] * there[best]
    return costs, effects


def _explained(late: Floats, there: Floats, inverse: Floats, bound: float) -> tuple[Floats, Floats]:
    """What each run's error costs that a unit leaves unexplained (the last: no unit), and each unit's effect.

    An error further than the bound from what the other runs let expect has a shift of its own, which costs twice the
    bound per unit of it: that is Huber's loss where errors do not vary together (She and Owen 2011, Journal of the
    American Statistical Association 106:626). Convex, solved by one run after another: moved at once, two runs of one
    configuration that differ would change places.
    """
    there = np.vstack([there, np.zeros(len(late))])  # the last: no unit
    weights, diagonal = there @ inverse, np.maximum(np.diag(inverse), LEAST)
    size = np.einsum("ij,ij->i", weights, there)
    size[size <= LEAST * (there @ diagonal)] = math.inf  # it has all runs of each width: nothing compares them
    effects, shifts = np.zeros(len(there)), np.zeros(there.shape)
    slope = np.tile(inverse @ late, (len(there), 1))
    for _ in range(PASSES):
        step = np.maximum(effects + np.einsum("ij,ij->i", slope, there) / size, 0.0) - effects
        effects, slope = effects + step, slope - step[:, None] * weights
        far = (np.abs(slope / diagonal + shifts) > bound) | (shifts != 0.0)
        if not far.any():
            break
        for run in np.flatnonzero(far.any(axis=0)):
            alone = slope[:, run] / diagonal[run] + shifts[:, run]
            step = alone - np.clip(alone, -bound, bound) - shifts[:, run]
            shifts[:, run], slope = shifts[:, run] + step, slope - step[:, None] * inverse[run]
    costs: Floats = (late - effects[:, None] * there - shifts) * slope + 2 * bound * np.abs(shifts) * diagonal
    return costs, effects[:-1]


def _within_widths(inverse: Floats, on: Sequence[frozenset[str]]) -> Floats:
    """Of runs that are compared with those on as many nodes: an error by the number of nodes is no node's fault."""
    widths = [len(nodes) for nodes in on]
    same = np.equal.outer(np.unique(widths), widths).astype(np.float64)
    slopes = same @ inverse
    found: Floats = inverse - slopes.T @ np.linalg.solve(slopes @ same.T, slopes)
    return found


def _alone(late: Floats, inverse: Floats) -> Floats:
    """By how much later each is than the others let expect (Martin and Simpson 2005, AIAA Journal 43:853, eq. 20)."""
    found: Floats = (inverse @ late) / np.maximum(np.diag(inverse), LEAST)
    return found
