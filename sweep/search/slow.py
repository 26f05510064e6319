"""Which part of the machine makes runs slow: a node, or the NVLink domain or switch that it is in. Pure.

A generalised least squares fit of one factor per unit to the errors of all measured runs, as the fit of step times
expects them to vary together: runs elsewhere say how long those on the unit should have taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    widths = [len(nodes) for nodes in on]
    same = np.equal.outer(np.unique(widths), widths).astype(np.float64)
    for noise in NOISES:
        noisier = np.maximum(rates, LEAST) / (1 + noise**2 * np.maximum(rates, LEAST))
        # Runs are compared with those on as many nodes: an error by the number of nodes is no node's fault.
        inverse = (axes * noisier) @ axes.T
        slopes = same @ inverse
        fit = _robust(errors.late, there, inverse - slopes.T @ np.linalg.solve(slopes @ same.T, slopes))
        if (likelihood := float(np.log(noisier).sum()) - len(on) * math.log(fit.costs[:-1].min())) > likely:
            likely, best = likelihood, fit
    assert best is not None
    return _sure(best, there, names, units, errors.fits)


class _Fit(NamedTuple):
    """Of each unit, and last of none."""

    costs: Floats
    """of the errors that it leaves unexplained"""
    single: Floats
    """units x runs: by how much less they would cost without the run"""
    effects: Floats


def _sure(
    fit: _Fit, there: Floats, names: Sequence[str], units: Mapping[str, frozenset[str]], fits: int
) -> Slow | None:
    """The unit that leaves least of the errors unexplained, if that is neither chance nor another's: by more than any
    single run says, which may be disturbed.
    """
    costs, number, best = fit.costs, there.shape[1], int(np.argmin(fit.costs[:-1]))
    runs, share = int(there[best].sum()), min(1.0, float(costs[best] / costs[-1]))
    chance = max(math.erfc(math.sqrt((1 - share) * number / 2)) / 2, 1 / math.comb(number, runs))
    others = np.delete(costs - (fit.single - fit.single[best]).max(axis=1), best)
    likelier = number / 2 * math.log(max(others.min(), LEAST) / costs[best])
    sure = chance <= level(units, fits) and likelier >= math.log(len(units) / MOST_BY_CHANCE)
    if not sure or fit.effects[best] < math.log(LEAST_FACTOR):
        return None
    return Slow(names[best], units[names[best]], math.exp(fit.effects[best]), runs, number, chance)


def _robust(late: Floats, there: Floats, inverse: Floats) -> _Fit:
    """As ``_explained``: an error counts as far by how the others spread about what the best unit explains."""
    effect = np.zeros(len(late))
    for _ in range(ROUNDS):
        # By how much later each is than the others let expect (Martin and Simpson 2005, AIAA Journal 43:853, eq. 20).
        alone = (inverse @ (late - effect)) / np.maximum(np.diag(inverse), LEAST)
        spread = MAD_FACTOR * float(np.median(np.abs(alone)))
        fit = _explained(late, there, inverse, FAR * max(spread, math.log(LEAST_FACTOR)))
        effect = fit.effects[best := int(np.argmin(fit.costs[:-1]))] * there[best]
    return fit


def _explained(late: Floats, there: Floats, inverse: Floats, bound: float) -> _Fit:
    """What the errors cost that each unit leaves unexplained, and its effect.

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
    rest, shifted = late - effects[:, None] * there - shifts, 2 * bound * np.abs(shifts) * diagonal
    costs = np.maximum(np.einsum("ij,ij->i", rest, slope) + shifted.sum(axis=1), LEAST)
    return _Fit(costs, slope**2 / diagonal + shifted, effects)
