"""What a search may still start within its limits, by counting."""

import numpy as np
import pytest

from sweep.search.budget import Budget
from tests.support.configurations import made_known, run

HOUR_S = 3600.0
"""what each run takes"""


def known(nodes=(1, 1, 1, 2, 2, 2), begun=()):
    """Runs of a cell per number of nodes; the ``begun`` ones have ended."""
    given = [{**run(mbs=2**i), "nodes": count} for i, count in enumerate(nodes)]
    return made_known(given, [(index, 100.0) for index in begun])


def affordable(budget, found, elapsed_s=0.0, seconds=HOUR_S):
    return np.flatnonzero(budget.affordable(found, np.full(6, seconds), elapsed_s)).tolist()


@pytest.mark.parametrize(("limits", "begun", "left"), [
    ({}, [0, 4], [1, 2, 3, 5]),  # what began is not started again
    ({"runs": 1}, [0, 4], []),
    ({"runs": 2}, [0, 4], []),
    ({"runs": 3}, [0, 4], [1, 2, 3, 5]),  # the last one
    ({"runs_per_cell": 1}, [0, 1], [3, 4, 5]),
    ({"runs_per_cell": 2}, [0, 1], [3, 4, 5]),
    ({"runs_per_cell": 3}, [0, 1], [2, 3, 4, 5]),
    ({"node_hours": 3}, [0, 3], []),  # spent: 1 + 2 hours
    ({"node_hours": 4}, [0, 3], [1, 2]),
    ({"node_hours": 5}, [0, 3], [1, 2, 4, 5]),  # exactly
    ({"node_hours": 4.99}, [0, 3], [1, 2]),
    ({"node_hours_per_cell": 1}, [0, 3], []),
    ({"node_hours_per_cell": 2}, [0, 3], [1, 2]),
    ({"node_hours_per_cell": 4}, [0, 3], [1, 2, 4, 5]),
    ({"runs": 3, "node_hours_per_cell": 2, "wall_s": 4000.0}, [0], [1, 2, 3, 4, 5]),  # all at once
    ({"runs": 3, "node_hours_per_cell": 2, "wall_s": 4000.0}, [0, 3], [1, 2]),
])  # fmt: skip
def test_what_each_limit_leaves_of_the_runs(limits, begun, left):
    assert affordable(Budget(**limits), known(begun=begun)) == left


@pytest.mark.parametrize(("elapsed", "left"), [(0, 6), (3600, 6), (3601, 0)])
def test_a_run_that_would_end_after_the_wall_time_is_not_started(elapsed, left):
    assert len(affordable(Budget(wall_s=7200.0), known(), elapsed)) == left


def shares(budget, found, open_, seconds=HOUR_S):
    mask = np.isin(np.arange(6), list(open_)) & ~found.begun
    return budget.shares(found, np.full(6, seconds), mask).tolist()


@pytest.mark.parametrize(("limits", "begun", "open_", "wanted"), [
    ({}, [], range(6), [3, 3]),
    ({}, [0], [1, 3, 4, 5], [1, 3]),
    ({"runs": 4}, [], range(6), [2, 2]),
    ({"runs": 4}, [0, 1], range(6), [0, 2]),  # the cell with the fewest runs first
    ({"runs": 5}, [0, 1], range(6), [1, 2]),
    ({"runs": 3}, [], range(6), [2, 1]),  # what is too little for all goes to the first
    ({"runs": 3}, [0], range(6), [1, 1]),
    ({"runs": 4}, [0, 1, 2], range(6), [0, 1]),  # a cell that has more than its part gives nothing back
    ({"runs": 9}, [], range(6), [3, 3]),
    ({"runs": 2}, [0, 3], range(6), [0, 0]),
    ({"runs": 4}, [], [0, 3, 4, 5], [1, 3]),  # few open runs leave the rest to others
    ({"runs_per_cell": 2}, [0, 3, 4], range(6), [1, 0]),
    ({"node_hours_per_cell": 2}, [], range(6), [2, 1]),  # fewer runs of more nodes
    ({"node_hours_per_cell": 3.9}, [], range(6), [3, 1]),
    ({"node_hours_per_cell": 4}, [], range(6), [3, 2]),
    ({"node_hours_per_cell": 0.5}, [], range(6), [0, 0]),
    ({"node_hours": 3}, [], range(6), [1, 1]),  # one of each: 1 + 2 hours
    ({"node_hours": 4}, [], range(6), [2, 1]),  # the last hour buys one of one node
    ({"node_hours": 6}, [], range(6), [2, 2]),
    ({"node_hours": 1}, [], range(6), [1, 0]),
    ({"node_hours": 0.5}, [], range(6), [0, 0]),
    ({"node_hours": 3}, [0, 1], range(6), [1, 0]),  # a next run that costs more than is left leaves it to others
    ({"node_hours": 4}, [0, 1], range(6), [0, 1]),
    ({"node_hours": 5}, [0, 3], range(6), [1, 0]),  # what is spent is no longer there
    ({"node_hours": 6}, [0, 3], range(6), [1, 1]),
    ({"node_hours_per_cell": 4}, [0, 3], range(6), [2, 1]),
    ({"node_hours_per_cell": 1}, [], [3], [0, 0]),  # none of one node is open, and one of two costs two
    ({"runs_per_cell": 1}, [0, 1, 3], range(6), [0, 0]),  # more than the limit began
    ({"node_hours_per_cell": 1}, [0, 1, 3], range(6), [0, 0]),
    ({"runs": 1}, [], range(6), [1, 0]),
    ({"runs": 1}, [0, 3], range(6), [0, 0]),
    ({"node_hours": 1}, [0, 3], range(6), [0, 0]),
])  # fmt: skip
def test_how_many_runs_each_cell_may_start(limits, begun, open_, wanted):
    assert shares(Budget(**limits), known(begun=begun), open_) == wanted


@pytest.mark.parametrize(("limits", "whole"), [
    ({"runs": 3}, True), ({"node_hours": 1.0}, True), ({"runs_per_cell": 3}, False),
    ({"node_hours_per_cell": 1.0}, False), ({"wall_s": 9.0}, False), ({"runs": 3, "runs_per_cell": 1}, True),
])  # fmt: skip
def test_cells_share_a_limit_of_all_runs_or_node_hours(limits, whole):
    assert Budget(**limits).whole is whole


@pytest.mark.parametrize(("limits", "runs"), [
    ({"share": 0.25}, 10), ({"share": 0.001}, 1), ({"share": 0.5, "runs": 7}, 7), ({"share": 0.1, "runs": 7}, 4),
    ({"runs": 7}, 7), ({"runs": 7, "share": None}, 7),
])  # fmt: skip
def test_a_share_is_of_all_runs_and_at_least_one(limits, runs):
    assert Budget.of(limits, 40).runs == runs
    assert Budget.of({"wall_time": 3600.0}, 40) == Budget(wall_s=3600.0)


@pytest.mark.parametrize("seed", range(40))
def test_where_each_cell_is_certain_of_a_share_it_has_one_whichever_runs_are_open(seed):
    generator = np.random.default_rng(seed)
    nodes, seconds = generator.integers(1, 5, 40), np.full(40, HOUR_S)
    found = known(nodes.tolist(), begun=np.flatnonzero(generator.random(40) < 0.3).tolist())
    cells, certain = found.candidates.cells, 0
    for runs in range(int(found.tries.sum()) + 1, 45):
        for limits in ({"runs": runs}, {"runs": runs, "runs_per_cell": 9}):
            budget = Budget(**limits)
            free = budget.affordable(found, seconds, 0.0)
            if not budget.enough_for_all(found, seconds, free):
                assert not budget.shares(found, seconds, free)[cells[free]].all(), "with all of them open"
                continue
            certain += 1
            for share in (0.05, 0.3, 0.9):
                open_ = free & (generator.random(40) < share)
                assert (budget.shares(found, seconds, open_)[cells[open_]] > 0).all()
    assert certain
    assert not Budget(runs=400, node_hours=1e6).enough_for_all(found, seconds, ~found.begun)


def with_repeats(begun=()):
    """Two configurations in each of two cells, and each once more: the last four runs."""
    given = [{**run(mbs=2**i), "nodes": n, "repeat": again} for again in (0, 1) for n in (1, 2) for i in range(2)]
    return made_known(given, [(index, 100.0) for index in begun])


@pytest.mark.parametrize(("limits", "begun", "left"), [
    ({"runs": 2}, [0, 2], []),
    ({"runs": 2, "repeats": 1}, [0, 2], [4, 5, 6, 7]),
    ({"runs": 3, "repeats": 1}, [0, 2, 4, 6], [1, 3, 5, 7]),  # the repeats that began count for nothing
    ({"runs_per_cell": 1, "repeats": 1}, [0, 4], [2, 3, 5, 6, 7]),
    ({"runs": 2, "repeats": 2}, [0, 2], []),  # the grid's own repeats are runs like any other
    ({"node_hours": 3, "repeats": 1}, [0, 2], []),  # hours are hours
])  # fmt: skip
def test_top_configurations_measured_again_are_beyond_a_number_of_runs(limits, begun, left):
    found, seconds = with_repeats(begun), np.full(8, HOUR_S)
    free = Budget(**limits).affordable(found, seconds, 0.0)
    assert np.flatnonzero(free).tolist() == left
    room = Budget(**limits).shares(found, seconds, free)
    if "runs" in limits and left:
        asked_for = max(0, limits["runs"] - sum(index < 4 for index in begun))
        assert room.sum() == asked_for + sum(index >= 4 for index in left)
