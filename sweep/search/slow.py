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
"""of the fit: errors are clipped about what the best unit of the round before explains"""
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
        best = int(np.argmin(left))
        factor = float(weights[best] @ errors.late / size[best])
        effect = factor * there[best]
    runs = int(there[best].sum())
    chance = max(math.erfc(math.sqrt((1 - left[best]) * number / 2)) / 2, 1 / math.comb(number, runs))
    likelier = number / 2 * math.log(np.delete(left, best).min(initial=1.0) / left[best])
    factor, name = math.exp(factor), names[best]
    sure = chance <= level(units, errors.fits) and likelier >= math.log(len(units) / MOST_BY_CHANCE)
    found = Slow(name, units[name], factor, runs, number, chance)
    return found if sure and factor >= LEAST_FACTOR else None


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
