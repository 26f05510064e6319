"""The table in docs/faults.md has a row for every fault that the product is accepted by, and none of them failed."""

from pathlib import Path

import pytest

from tests.faults.table import BEGIN, FAULTS, Row, rows_of, with_row

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_row_tells_what_was_measured(fault):
    outcome, _, _, left, following = rows_of(PAGE.read_text())[fault]
    assert outcome
    assert left == "0"
    assert following == "ok"


def test_a_row_takes_the_place_of_an_earlier_one_and_the_rest_of_the_page_stays():
    lines = "| segfault | unknown |  |  | 3 | - |\n| scancel | preempted | 0.2 | 0.5 | 0 | ok |\n"
    page = f"Before.\n\n{BEGIN}{lines}\nAfter.\n"
    row = Row("segfault", "segfault", 0.25, None, 0, "ok")
    assert with_row(page, row) == (
        f"Before.\n\n{BEGIN}| segfault | segfault | 0.2 |  | 0 | ok |\n"
        "| scancel | preempted | 0.2 | 0.5 | 0 | ok |\n\nAfter.\n"
    )
    added = with_row(page, Row("NaN in the weights", "nan_loss", None, 1.0, 0, "ok"))
    assert list(rows_of(added)) == ["segfault", "NaN in the weights", "scancel"]
