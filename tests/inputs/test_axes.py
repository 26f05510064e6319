"""The values that a key of a grid may state: lists, ranges, and what is refused."""

import pytest

from sweep.inputs.axes import MAX_VALUES, listed, scalars


@pytest.mark.parametrize(("given", "values"), [
    (4, [4]), ([1, 2], [1, 2]), ((1, True, 1.0), [1, True, 1.0]), ("text", ["text"]), (None, [None]),
    ({"from": 3, "to": 3}, [3]), ({"from": 1, "to": 4}, [1, 2, 3, 4]), ({"from": 0, "to": 5, "step": 2}, [0, 2, 4]),
    ({"from": -1, "to": 1}, [-1, 0, 1]), ({"from": 1, "to": 9, "times": 2}, [1, 2, 4, 8]),
    ({"from": 1, "to": 8, "times": 2}, [1, 2, 4, 8]), ({"from": 5, "to": 5, "times": 3}, [5]),
])  # fmt: skip
def test_a_key_states_one_value_a_list_or_a_range(given, values):
    found = listed(given)
    assert [(type(one), one) for one in found] == [(type(one), one) for one in values]


@pytest.mark.parametrize(("given", "fact"), [
    ([], "the list is empty"), ([1, 2, 3, 2], "twice: as item 2 and 4"), (["a", "a"], "twice: as item 1 and 2"),
    ({"from": 2, "to": 1}, "from <= to"), ({"from": 1, "to": 4, "step": 0}, "a step of at least 1"),
    ({"from": 1, "to": 4, "times": 1}, "times of at least 2"), ({"from": 0, "to": 4, "times": 2}, "from <= to"),
    ({"from": 1, "to": 4, "step": 1, "times": 2}, "nothing else"), ({"from": 1}, "nothing else"),
    ({"to": 1}, "nothing else"), ({"from": 1, "to": 2, "by": 1}, "nothing else"), ({"from": 1, "to": 2.0}, "whole"),
    ({"from": True, "to": 2}, "whole numbers"),
])  # fmt: skip
def test_what_is_no_list_or_range_is_refused(given, fact):
    with pytest.raises(ValueError, match=fact):
        listed(given)


def test_a_key_has_ten_thousand_values_at_most():
    assert MAX_VALUES == 10_000
    assert len(listed(list(range(MAX_VALUES)))) == len(listed({"from": 1, "to": MAX_VALUES})) == MAX_VALUES
    assert len(listed({"from": 0, "to": 3 * MAX_VALUES - 1, "step": 3})) == MAX_VALUES
    for given in (
        list(range(MAX_VALUES + 1)),
        {"from": 0, "to": MAX_VALUES},
        {"from": 0, "to": 3 * MAX_VALUES, "step": 3},
    ):
        with pytest.raises(ValueError, match=r"10,000"):
            listed(given)


def test_every_wrong_value_is_named_once():
    with pytest.raises(ValueError, match="expected text or a number, found a mapping; expected text"):
        scalars([{}, {"a": 1}, [1], "right"])
    assert scalars(["a", 1, 1.5, True, None]) == ("a", 1, 1.5, True, None)
