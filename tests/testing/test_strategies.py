"""`check_strategy`: our own strategies pass, and each deviation of another is found."""

import itertools

import numpy as np
import pytest

from sweep.plugins import STRATEGY
from sweep.search.strategies import Exhaustive, Pick, Prune
from sweep.testing import ConformanceError
from tests.support.conforming_strategies import check_strategy


@pytest.mark.parametrize("name", STRATEGY.table)
def test_our_own_conform(name):
    check_strategy(name)


class PicksWhatIsTaken(Exhaustive):
    def pick(self, known, free):
        return Pick(0, "the first") if free.any() else None


class PicksOutOfNothing(Exhaustive):
    def pick(self, known, free):
        return Pick(0, "the first")


class GivesUp(Exhaustive):
    def pick(self, known, free):
        return None


class IgnoresFree(Exhaustive):
    def open(self, known, free):
        return np.ones(len(free), dtype=bool)


class PicksWhatIsNotOpen(Prune):
    def pick(self, known, free):
        return Pick(int(np.argmax(free)), "the first") if free.any() else None


class Remembers(Exhaustive):
    count = itertools.count()

    def pick(self, known, free):
        rows = np.flatnonzero(free)
        return Pick(int(rows[next(self.count) % len(rows)]), "in turn") if len(rows) else None


class FollowsTheOrder(Exhaustive):
    """Knows which result arrived last, though journals are read in any order."""

    def pick(self, known, free):
        rows = np.flatnonzero(free)
        latest = next(reversed(known._ends), 0)
        return Pick(int(rows[latest % len(rows)]), "after the latest") if len(rows) else None


class Changes(Exhaustive):
    def pick(self, known, free):
        pick = super().pick(known, free)
        if pick is not None:
            free[pick.index] = False
        return pick


class Numbers(Exhaustive):
    def open(self, known, free):
        return list(free)


class NoReason(Exhaustive):
    def pick(self, known, free):
        pick = super().pick(known, free)
        return pick and Pick(pick.index, "")


class Fails(Exhaustive):
    def pick(self, known, free):
        return Pick(int(np.nanargmax(known.log_rates)), "the best")


@pytest.mark.parametrize(
    ("strategy", "finding"),
    [
        (PicksWhatIsTaken, "which is not a free run"),
        (PicksOutOfNothing, "picks a run when none is free"),
        (GivesUp, "runs are open: the sweep would never end"),
        (IgnoresFree, "open has runs that are not free"),
        (PicksWhatIsNotOpen, "every third run is out of memory: picks run"),
        (Remembers, "a new instance picks another run"),
        (FollowsTheOrder, "the order in which results arrive changes its pick"),
        (Changes, "changes what it is given"),
        (Numbers, "open gives list, not a boolean per run"),
        (NoReason, "gives no reason for its pick"),
        (Fails, "raised ValueError: All-NaN slice"),
    ],
)
def test_a_deviation_is_found(strategy, finding):
    with pytest.raises(ConformanceError, match=f"the strategy {strategy.__name__} does not conform") as error:
        check_strategy(strategy)
    assert finding in "\n".join(error.value.findings)
