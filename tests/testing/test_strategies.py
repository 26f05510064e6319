"""Every strategy is a function of the observations, and picks only what it may."""

import pytest

from sweep.plugins import STRATEGY
from tests.support.conforming_strategies import check_strategy


@pytest.mark.parametrize("name", STRATEGY.table)
def test_our_own_conform(name):
    check_strategy(name)
