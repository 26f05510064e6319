"""--filter: what matches, what is refused."""

import numpy as np
import pandas as pd
import pytest

from analysis.filters import keep, names_in
from sweep.errors import SweepError


@pytest.mark.parametrize(
    ("expression", "retained"),
    [
        ("zero <= 1", ["a", "b"]),
        ("zero <= 1 and model == '8B'", ["b"]),
        ("not zero == 3", ["a", "b"]),
        ("model in ('1B', '3B') or zero == 1", ["a", "b", "c"]),
        ("model not in ['1B']", ["b", "c"]),
        ("1 < tp <= 8", ["b"]),
        ("tp * 2 == dp", ["b"]),
        ("mfu > 0.4", ["a"]),
        ("compile", ["a"]),
        ("tp % 4 == 0 and -tp < -3", ["b"]),
    ],
)
def test_filters_keep_matching_rows(expression, retained):
    records = pd.DataFrame(
        {
            "id": list("abc"),
            "model": ["1B", "8B", "3B"],
            "zero": pd.array([0, 1, 3], dtype="Int64"),
            "tp": pd.array([1, 4, None], dtype="Int64"),
            "dp": [8, 8, 8],
            "mfu": [0.5, np.nan, 0.1],
            "compile": pd.array([True, False, None], dtype="boolean"),
        }
    )
    assert keep(records, expression)["id"].tolist() == retained


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("zreo <= 1", "did you mean zero"),
        ("zero <=", "is not an expression"),
        ("zero", "not a condition"),
        ("zero + 1", "not a condition"),
        ("__import__('os').system('true')", "may be called"),
        ("model.__class__ == 1", "not allowed"),
        ("[x for x in model]", "not allowed"),
        ("model < 3", "cannot be evaluated"),
        ("zero << 99 > 1", "not allowed"),
        ("(lambda: 1)() == 1", "may be called"),
        ("zero in 3", "cannot be evaluated"),
        ("", "not a single condition"),
        ("(" * 500, "is not an expression"),
    ],
)
def test_an_invalid_filter_is_an_error(expression, words):
    records = pd.DataFrame({"zero": [0, 1], "model": ["a", "b"]})
    with pytest.raises(SweepError, match="--filter") as error:
        keep(records, expression)
    assert words in str(error.value)


def test_every_unknown_column_is_named_at_once():
    with pytest.raises(SweepError) as error:
        keep(pd.DataFrame({"zero": [0]}), "a < 1 and b < 2")
    assert len(error.value.mistakes) == 2
    assert names_in("zero <= 1 and zero + tp > 2") == ("zero", "tp")
