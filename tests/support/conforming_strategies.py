"""Whether a search strategy is a function of the observations, and picks only what it may."""

import numpy as np

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.plugins import STRATEGY
from sweep.search.candidates import from_plan
from sweep.search.observations import Known
from tests.support.made_plans import plan_of

GRID = """
workload: simulated
models: [1B, 8B]
nodes: [1, 2]
sequence_length: 4096
global_batch: 256Ki
tp: [1, 2, 8]
zero: [0, 3]
micro_batch_size: [1, 2]
site: {gpu: h100, gpus_per_node: 8}
"""
PEAK_BYTES = 40e9
CHECK_ORDER_EVERY = 8
"""picks between two checks that the order of arrival does not matter: they cost a fit each"""


def check_strategy(name: str) -> None:
    """A registered strategy, on a small sweep in which every run, two of three or no run works."""
    for outcomes in ([Outcome.OK], [Outcome.OOM_CUDA, Outcome.OK, Outcome.OK], [Outcome.UNKNOWN]):
        _check(STRATEGY.find(name), outcomes)


def _check(make, outcomes):
    """Of a strategy on one plan, until it wants no further run. ``outcomes``: of the runs by place, again and again."""
    candidates = from_plan(plan_of(GRID, None).runs, GPUS["h100"])
    strategy, known, measured = make(), Known(candidates), []
    assert strategy.pick(known, np.zeros(len(candidates), dtype=bool)) is None, "none is free"
    for number in range(len(candidates) + 1):
        free, begun = ~known.begun, known.begun.copy()
        given = free.copy()
        pick, opened = strategy.pick(known, given), strategy.open(known, given)
        assert (given == free).all(), "it changes what it is given"
        assert (known.begun == begun).all(), "it changes what it is given"
        assert (opened.dtype, opened.shape) == (np.bool_, free.shape)
        assert not (opened & ~free).any(), "runs that are not free are open"
        assert make().pick(known, free.copy()) == pick, "it depends on more than the observations"
        for cell in range(len(candidates.cell_names)):
            mine = free & (candidates.cells == cell)
            assert not mine.any() or (strategy.pick(known, mine) is not None) == strategy.open(known, mine).any()
        if number % CHECK_ORDER_EVERY == 1:  # a launcher that reads the journals later sees the ends in another order
            again = Known(candidates)
            for when, place in reversed([*enumerate(measured)]):
                _end(again, place, when, outcomes)
            assert make().pick(again, free.copy()) == pick, "it depends on the order in which runs ended"
        if pick is None:
            assert not opened.any(), "the sweep would never end"
            return
        assert free[pick.index]
        assert opened[pick.index]
        assert pick.why
        _end(known, pick.index, len(measured), outcomes)
        measured.append(pick.index)


def _end(known, place, when, outcomes):
    outcome = outcomes[place % len(outcomes)]
    rate, peak = (1000.0 + 37 * (place * 7919 % 101), PEAK_BYTES) if outcome is Outcome.OK else (None, None)
    known.end(place, outcome, rate, peak, when=float(when))
