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
ROUNDS = 3
"""of the fit: how far errors spread is seen about what the best unit of the round before explains"""
CONVERGED = 10
"""rounds of the fit that clips about what each unit explains, each by up to the bound"""
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
    there, number = np.array([touched[name] for name in names], dtype=np.float64), len(on)
    inverse = _within_widths(errors.inverse, [len(nodes) for nodes in on])
    weights = there @ inverse
    size = np.maximum(np.einsum("ij,ij->i", weights, there), LEAST)
    alone, effect = _alone(errors.late, inverse), np.zeros(number)
    for _ in range(ROUNDS):
        spread = MAD_FACTOR * float(np.median(np.abs(_alone(errors.late - effect, inverse))))
        bound = FAR * max(spread, math.log(LEAST_FACTOR))
        late = errors.late - alone + np.clip(alone, -bound, bound)
        later = np.maximum(weights @ late, 0.0)
        left = np.maximum(1 - later**2 / size / max(late @ inverse @ late, LEAST), LEAST)
        effect = weights[(best := int(np.argmin(left)))] @ errors.late / size[best] * there[best]
    if found := _sure(left, float(effect.max()), there, names, units, errors.fits):
        return found
    left, effects = _about_each(errors.late, there, inverse, bound)
    found = _sure(left, float(effects[int(np.argmin(left))]), there, names, units, errors.fits)
    # One far run elsewhere decides between a node, which few runs touch, and its neighbour.
    return found if found and len(found.nodes) > 1 else None


def _sure(
    left: Floats, effect: float, there: Floats, names: Sequence[str], units: Mapping[str, frozenset[str]], fits: int
) -> Slow | None:
    """The unit that leaves the smallest share of the errors unexplained, if that is neither chance nor another's."""
    best, number = int(np.argmin(left)), there.shape[1]
    runs = int(there[best].sum())
    chance = max(math.erfc(math.sqrt((1 - left[best]) * number / 2)) / 2, 1 / math.comb(number, runs))
    likelier = number / 2 * math.log(np.delete(left, best).min(initial=1.0) / left[best])
    sure = chance <= level(units, fits) and likelier >= math.log(len(units) / MOST_BY_CHANCE)
    if not sure or effect < math.log(LEAST_FACTOR):
        return None
    return Slow(names[best], units[names[best]], math.exp(effect), runs, number, chance)


def _about_each(late: Floats, there: Floats, inverse: Floats, bound: float) -> tuple[Floats, Floats]:
    """Share of the errors that each unit leaves unexplained, and its effect, where errors are clipped about that.

    A factor as large as the bound would be clipped away otherwise. What is clipped costs twice the bound per unit of
    it, as in Huber's loss (She and Owen 2011, Journal of the American Statistical Association 106:626).
    """
    there = np.vstack([there, np.zeros(len(late))])  # the last: no unit
    weights, diagonal = there @ inverse, np.maximum(np.diag(inverse), LEAST)
    size, effects = np.maximum(np.einsum("ij,ij->i", weights, there), LEAST), np.zeros(len(there))
    for _ in range(CONVERGED):
        alone = (inverse @ late - effects[:, None] * weights) / diagonal
        clipped = late - alone + np.clip(alone, -bound, bound)
        effects = np.maximum(np.einsum("ij,ij->i", weights, clipped) / size, 0.0)
    rest = clipped - effects[:, None] * there
    cost = np.einsum("ij,ij->i", rest @ inverse, rest) + 2 * bound * (np.abs(late - clipped) @ diagonal)
    left: Floats = np.clip(cost / max(cost[-1], LEAST), LEAST, 1.0)[:-1]
    return left, effects[:-1]


def _within_widths(inverse: Floats, widths: Sequence[int]) -> Floats:
    """Of runs that are compared with those on as many nodes: an error by the number of nodes is no node's fault."""
    same = np.equal.outer(np.unique(widths), widths).astype(np.float64)
    slopes = same @ inverse
    found: Floats = inverse - slopes.T @ np.linalg.solve(slopes @ same.T, slopes)
    return found


def _alone(late: Floats, inverse: Floats) -> Floats:
    """By how much later each is than the others let expect (Martin and Simpson 2005, AIAA Journal 43:853, eq. 20)."""
    found: Floats = (inverse @ late) / np.maximum(np.diag(inverse), LEAST)
    return found
