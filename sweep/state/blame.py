"""Which part of the machine explains failures: a node, or the NVLink domain or switch that it is in. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sweep.outcomes import BY_A_PART, Outcome
from sweep.state.retries import config_fault
from sweep.state.state import Attempt, SweepState

MOST_BY_CHANCE = 0.05
"""chance that ever, in a sweep whose failures or slow runs have nothing to do with places, any unit is blamed"""


@dataclass(frozen=True)
class Trial:
    """An attempt: where, and whether it failed in a way that a part of the machine may cause."""

    nodes: frozenset[str]
    failed: bool


@dataclass(frozen=True)
class Blame:
    """A unit, and what speaks against it."""

    unit: str
    nodes: frozenset[str]
    failed: int
    touching: int
    """of so many attempts on its nodes"""
    failed_elsewhere: int
    elsewhere: int
    chance: float
    """of so many failures there, or more, if they fell on attempts at random (Fisher's exact test)"""

    def __str__(self) -> str:
        return (
            f"{self.failed} of {self.touching} attempts on {self.unit} failed, {self.failed_elsewhere} of "
            f"{self.elsewhere} elsewhere; by chance in 1 of {1 / self.chance:,.0f}"
        )


def trials_of(sweep_state: SweepState) -> list[Trial]:
    """The attempts that say something about places: ok, or failed as BY_A_PART says. Not those of runs that failed the
    same way elsewhere, nor those on nodes that the user has released since.
    """
    found = []
    for run in sweep_state.runs.values():
        attempts = [one for one in run.attempts.values() if one.outcome is not None and one.nodes]
        if config_fault([one.outcome for one in attempts], [frozenset(one.nodes) for one in attempts]):  # type: ignore[misc]
            continue
        found += [
            Trial(frozenset(one.nodes), one.outcome in BY_A_PART)
            for one in attempts
            if (one.outcome is Outcome.OK or one.outcome in BY_A_PART) and not released_since(sweep_state, one)
        ]
    return found


def released_since(sweep_state: SweepState, attempt: Attempt) -> bool:
    """Whether the user has released one of its nodes since it ended: it no longer says anything of places."""
    cleared = sweep_state.nodes.cleared_at
    return any(cleared.get(node, -math.inf) >= (attempt.ended_at or 0.0) for node in attempt.nodes)


def nodes_of(sweep_state: SweepState, run_ids: Iterable[str]) -> list[frozenset[str]]:
    """Where each of these runs was measured; nowhere, where the user has released a node of it since."""
    ok = [sweep_state.run_state(run_id).ok for run_id in run_ids]
    return [frozenset(one.nodes if one and not released_since(sweep_state, one) else ()) for one in ok]


def level(units: Mapping[str, frozenset[str]], look: int) -> float:
    """The chance below which a unit is blamed: of MOST_BY_CHANCE the k-th look has the share 1 / (k (k + 1)), whose sum
    is 1, for all units together.
    """
    return MOST_BY_CHANCE / (max(1, look * (look + 1)) * len(units))


def blamed(trials: Sequence[Trial], units: Mapping[str, frozenset[str]]) -> Blame | None:
    """The smallest unit that explains the failures; None where they may be by chance, or another explains them too.

    ``units``: name -> nodes, those of one node too. There is a look after each failure.
    """
    limit = level(units, sum(trial.failed for trial in trials))
    found = {name: _against(name, nodes, trials) for name, nodes in units.items()}
    best = min(found.values(), key=lambda one: (one.chance, len(one.nodes)))
    if best.chance > limit:
        return None
    for one in sorted(found.values(), key=lambda one: len(one.nodes)):  # a larger one that is needed for the rest
        if one.nodes > best.nodes and _without(one, best, trials).chance <= MOST_BY_CHANCE / len(units):
            best = one
    near = [one for one in found.values() if one is not best and one.chance <= best.chance / MOST_BY_CHANCE]
    return None if any(_undecided(best, one, trials) for one in near) else best


def _undecided(best: Blame, other: Blame, trials: Sequence[Trial]) -> bool:
    """Whether another unit explains the failures as well: those of the best's attempts that are not on it, or the
    other way round, neither need the one nor speak against it.
    """
    whole, part = (other, best) if other.nodes > best.nodes else (best, other)
    rest = _without(whole, part, trials)
    share = whole.failed / whole.touching
    few = sum(
        math.comb(rest.touching, k) * share**k * (1 - share) ** (rest.touching - k) for k in range(rest.failed + 1)
    )
    return few > MOST_BY_CHANCE if whole is other else rest.chance > MOST_BY_CHANCE


def _without(whole: Blame, part: Blame, trials: Sequence[Trial]) -> Blame:
    """The whole's attempts that are not on the part."""
    return _against(whole.unit, whole.nodes, [trial for trial in trials if part.nodes.isdisjoint(trial.nodes)])


def _against(unit: str, nodes: frozenset[str], trials: Sequence[Trial]) -> Blame:
    there = [trial.failed for trial in trials if not nodes.isdisjoint(trial.nodes)]
    failed, others = sum(there), sum(trial.failed for trial in trials) - sum(there)
    elsewhere = len(trials) - len(there)
    return Blame(unit, nodes, failed, len(there), others, elsewhere, tail(failed, len(there), others, elsewhere))


def tail(failed: int, there: int, others: int, elsewhere: int) -> float:
    """The chance of at least so many of the failures among those there (hypergeometric; Fisher 1935)."""
    failures = failed + others
    ways = (
        _log_ways(there, k) + _log_ways(elsewhere, failures - k)
        for k in range(max(failed, failures - elsewhere), min(failures, there) + 1)
    )
    return math.fsum(math.exp(one - _log_ways(there + elsewhere, failures)) for one in ways)


def _log_ways(total: int, chosen: int) -> float:
    return math.lgamma(total + 1) - math.lgamma(chosen + 1) - math.lgamma(total - chosen + 1)
