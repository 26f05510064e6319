"""How wide `guided` takes predictions to be, and what `miss` does."""

import numpy as np
import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.search.guided import Guided, wider
from sweep.search.search import Search
from tests.search.test_guided import known
from tests.support.made_sweeps import GRID


def test_a_prediction_is_trusted_less_than_the_posterior_says_and_least_in_a_cell_with_few_runs():
    few, many = known({0: 1000.0, 8: 1000.0}), known(dict.fromkeys([*range(7), 8], 1000.0))
    row = np.array([7])
    assert wider(few, row) == pytest.approx(1.3 * 6**0.5)
    assert 1.3 < wider(many, row)[0] < wider(few, row)[0]


def test_miss_is_a_share_that_the_search_gets_and_other_strategies_refuse():
    grid = parse_grid(f"{GRID}miss: 2%\n", "grid.yaml")
    assert (grid.strategy, grid.limits) == ("guided", {"miss": 0.02})
    assert Search((), strategy=grid.strategy, limits=grid.limits)._strategy == Guided(miss=0.02)
    with pytest.raises(SweepError, match="only `strategy: guided`"):
        parse_grid(f"{GRID}strategy: prune\nmiss: 2%\n", "grid.yaml")
