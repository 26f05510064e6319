"""`transfer: false`: each cell is believed as if it were alone in the world; with it, cells learn from each other."""

from dataclasses import replace

import numpy as np
import pytest

from sweep.outcomes import Outcome
from sweep.physics.hardware import GPUS
from sweep.search.beliefs import Beliefs, End
from sweep.search.candidates import from_configurations
from sweep.search.guided import Guided
from sweep.search.observations import Known
from sweep.search.search import Search
from sweep.search.separate_beliefs import SeparateBeliefs
from tests.support.configurations import run
from tests.support.pilot_parts import order

SIZES, NODES = (1, 2, 4, 8), (1, 2, 4)
ENDS = [
    (0, End(Outcome.OK, 6.9, 4e10)), (5, End(Outcome.OK, 6.0, None)), (1, End(Outcome.OOM_CUDA, None, None)),
    (9, End(Outcome.HANG, None, None)), (2, End(Outcome.OK, 7.4, 5e10)), (4, End(Outcome.OK, 6.3, 3e10)),
]  # fmt: skip


@pytest.fixture
def candidates():
    """Cells of interleaved rows: row i has the i-th of SIZES by 3, on the node count i mod 3."""
    given = [{**run(dp=8, mbs=mbs), "nodes": nodes} for mbs in SIZES for nodes in NODES]
    return from_configurations([f"run-{i:016x}" for i in range(len(given))], given, GPUS["h100"])


def test_each_cell_is_believed_as_alone(candidates):
    found = SeparateBeliefs(candidates)
    found.learn(ENDS[:3])
    found.learn(ENDS[3:])
    every = np.arange(len(candidates))
    covariance = found.covariance(every)
    for cell in range(len(NODES)):
        rows = np.flatnonzero(candidates.cells == cell)
        given = [{**run(dp=8, mbs=mbs), "nodes": NODES[cell]} for mbs in SIZES]
        alone = Beliefs(from_configurations([candidates.ids[i] for i in rows], given, GPUS["h100"]))
        alone.learn([(rows.tolist().index(index), end) for index, end in ENDS if index in rows])
        own = np.arange(len(rows))
        assert found.log_rates(every)[rows] == pytest.approx(alone.log_rates(own))
        assert found.log_rates(rows[::-1]) == pytest.approx(alone.log_rates(own[::-1]))
        assert found.success(every)[rows] == pytest.approx(alone.success(own))
        for measured in (True, False):
            assert found.spreads(every, measured=measured)[rows] == pytest.approx(alone.spreads(own, measured=measured))
        assert covariance[np.ix_(rows, rows)] == pytest.approx(alone.covariance(own))
        assert not covariance[np.ix_(rows, np.setdiff1d(every, rows))].any()


@pytest.mark.parametrize("transfer", [True, False])
def test_what_one_cell_shows_moves_another_only_with_transfer(candidates, transfer):
    known = Known(replace(candidates, transfer=transfer))
    other = np.flatnonzero(candidates.cells == 2)
    before = known.predicted(other), known.success(other)
    for place, (index, end) in enumerate((index, end) for index, end in ENDS if candidates.cells[index] != 2):
        rate = None if end.log_rate is None else float(np.exp(end.log_rate))
        known.end(index, end.outcome, rate, end.peak_memory_bytes, when=float(place))
    after = known.predicted(other), known.success(other)
    assert np.allclose(before, after) is not transfer


def test_a_search_without_transfer_is_that_of_its_pilots_order():
    """The key reaches the leader's search; an order of an older launcher has none, and transfers."""
    assert order().transfer
    assert not order(transfer=False).transfer
    assert Search([]).known.candidates.transfer
    assert not Search.of([], transfer=False).known.candidates.transfer


def test_a_cell_that_others_taught_nothing_is_searched_like_the_first(candidates):
    """The same ends in cell 0 alone or after ends in the others: the same next run there."""
    apart = replace(candidates, transfer=False)
    alone, later = Known(apart), Known(apart)
    for place, index in enumerate((1, 2, 4, 5, 7, 8)):
        later.end(index, Outcome.OK, 100.0 * (index + 1), when=float(place))
    for place, index in enumerate((0, 3, 6)):
        for known in (alone, later):
            known.end(index, Outcome.OK, 900.0 - 50 * index, when=10.0 + place)
    free = (candidates.cells == 0) & ~alone.begun
    assert Guided().pick(alone, free) == Guided().pick(later, free)
