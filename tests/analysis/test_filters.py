"""--filter: what matches, what is refused."""

import pandas as pd
import pytest

from analysis.filters import keep, names_in
from sweep.errors import SweepError
from tests.support.refusals import mistakes_of


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("zreo <= 1", "did you mean zero"),
        ("zero <=", "is not an expression"),
        ("zero + 1", "not a condition"),
        ("model < 3", "cannot be evaluated"),
    ],
)
def test_an_invalid_filter_is_an_error(expression, words):
    records = pd.DataFrame({"zero": [0, 1], "model": ["a", "b"]})
    with pytest.raises(SweepError, match="--filter") as error:
        keep(records, expression)
    assert words in str(error.value)


def test_every_unknown_column_is_named_at_once():
    assert len(mistakes_of(keep, pd.DataFrame({"zero": [0]}), "a < 1 and b < 2")) == 2
    assert names_in("zero <= 1 and zero + tp > 2") == ("zero", "tp")
