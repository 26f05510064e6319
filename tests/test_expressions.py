"""The conditions of constraints and of --filter: one language, over plain columns and over columns with nulls."""

import numpy as np
import pandas as pd
import pytest

from analysis.filters import keep
from sweep.errors import SweepError
from sweep.expressions import holds, names_in

COLUMNS = {
    "tp": np.array([1, 2, 4, 8]),
    "pp": np.array([8, 1, 2, 1]),
    "zero": np.array([0, 1, 3, 3]),
    "mfu": np.array([0.1, 0.5, 0.4, 0.3]),
    "recompute": np.array(["none", "full", "none", "selective"]),
    "compile": np.array([True, False, True, False]),
}
CONDITIONS = {
    "tp * pp <= 4 or zero > 2": [1, 2, 3],
    "tp in [1, 4] if recompute == 'none' else tp >= 8": [0, 2, 3],
    "1 < tp <= 8 and not (zero == 3 and pp > 1)": [1, 3],
    "min(tp, pp) == 2 or max(tp, pp, 3) == 3": [1, 2],
    "abs(zero - tp) ** 2 > 1": [3],
    "2 in (tp, pp)": [1, 2],
    "tp is not 4 and mfu / 2 < 0.2": [0, 3],
    "recompute not in ('none', 'full')": [3],
    "'g' < recompute < 'o'": [0, 2],
    "recompute is None": [],
    "recompute != None": [0, 1, 2, 3],
    "recompute == 1 or tp == '1' or mfu in ('x', 0.5)": [1],
    "recompute in ('none', 1)": [0, 2],
    "recompute in (recompute, 'x')": [0, 1, 2, 3],
    "compile": [0, 2],
    "not compile and tp % 3 // 2": [1, 3],
    "True": [0, 1, 2, 3],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_keeps_what_a_constraint_lets_pass(condition):
    passed = np.broadcast_to(holds(condition, COLUMNS), 4)
    assert np.flatnonzero(passed).tolist() == CONDITIONS[condition]
    assert keep(pd.DataFrame(COLUMNS), condition).index.tolist() == CONDITIONS[condition]


@pytest.mark.parametrize(
    "text",
    [
        *("tp +", "", "tp = 3", "tp; pp", "(" * 500, "-" * 9000 + "tp", "tp <= " + "1 + " * 3000 + "1"),
        *("tp", "tp + 1", "[tp]", "tp in 3", "tp == [1, 2]", "recompute < 3", "recompute + 'x' == 'y'"),
        *("recompute * 9 == 'y'", "tp.__class__ == 1", "tp[0] == 1", "(lambda: 1)() == 1", "[x for x in tp]"),
        *("__import__('os').system('true')", "print(tp)", "min() < 1", "f'{tp}' == ''", "tp < 9 ** 9 ** 9 ** 9j"),
        *(f"tp < {'9' * 40}", "b'x' == recompute", "(tp := 3) == 3", "tp << 60 > 1"),
    ],
)
def test_invalid_conditions_are_invalid_for_both(text):
    with pytest.raises(ValueError, match=r"."):
        holds(text, {name: COLUMNS[name] for name in names_in(text)})
    with pytest.raises(SweepError, match="--filter"):
        keep(pd.DataFrame(COLUMNS), text)


NULLS = pd.DataFrame(
    {
        "zero": pd.array([0, 3, None], dtype="Int64"),
        "compile": pd.array([True, False, None], dtype="boolean"),
        "mfu": [0.5, 0.1, np.nan],
        "recompute": pd.Series(["none", "full", None], dtype=object),
        "kind": pd.Categorical(["none", "full", None]),
        "absent": pd.Series([None, None, None], dtype=object),
    }
)


@pytest.mark.parametrize(
    ("condition", "opposite"),
    [
        ("zero == 0", "zero != 0"),
        ("zero < 2", "not zero < 2"),
        ("zero in (0, 1)", "zero not in (0, 1)"),
        ("mfu > 0.4", "not mfu > 0.4"),
        ("mfu == 0.5", "mfu != 0.5"),
        ("compile", "not compile"),
        ("recompute == 'none'", "recompute != 'none'"),
        ("recompute in ['none']", "recompute not in ['none']"),
        ("kind == 'none'", "kind != 'none'"),
        ("zero + 1 < 2", "-zero < -1"),
        ("min(zero, 2) < 2", "max(zero, 2) > 2"),
        ("(zero if compile else 9) == 0", "(zero if compile else 9) != 0"),
    ],
)
def test_unknown_values_meet_neither_a_condition_nor_its_opposite(condition, opposite):
    assert keep(NULLS, condition).index.tolist() == [0]
    assert keep(NULLS, opposite).index.tolist() == [1]
    assert keep(NULLS, f"{condition} or {opposite}").index.tolist() == [0, 1]
    assert keep(NULLS, f"not ({condition} and {opposite})").index.tolist() == [0, 1]
    assert keep(NULLS, f"{condition} or mfu is None").index.tolist() == [0, 2], "unknown or true is true"
    assert keep(NULLS, f"not ({condition} and mfu is not None)").index.tolist() == [1, 2], "unknown and false is false"


@pytest.mark.parametrize("name", ["zero", "compile", "mfu", "recompute", "kind"])
def test_whether_a_column_is_known_can_be_checked(name):
    for condition in (f"{name} is None", f"{name} == None", f"None == {name}", f"{name} in [None, 7]"):
        assert keep(NULLS, condition).index.tolist() == [2], condition
    assert keep(NULLS, f"{name} is not None").index.tolist() == [0, 1]


def test_a_column_without_any_value_holds_nothing():
    assert keep(NULLS, "absent == 'x' or absent != 'x'").empty
    assert len(keep(NULLS, "absent is None")) == 3
    assert keep(NULLS.iloc[:0], "zero > 1 and recompute == 'x'").empty


def test_a_null_that_a_grid_gives_is_a_value():
    columns = {"fused": np.array([None, 1, "x"], dtype=object), "width": None}
    assert holds("fused != 1", columns).tolist() == [True, False, True]
    assert holds("fused is None", columns).tolist() == [True, False, False]
    assert holds("width == None", columns)
    assert not holds("width == 3", columns)


def test_large_whole_numbers_stay_whole_where_some_are_null():
    frame = pd.DataFrame({"bytes": pd.array([2**60 + 1, 2**60, None], dtype="Int64")})
    assert keep(frame, f"bytes == {2**60 + 1}").index.tolist() == [0]
