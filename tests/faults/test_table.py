"""The table in docs/faults.md has a row for every fault of the acceptance criteria, and none of them failed."""

from sweep.outcomes import Outcome
from tests.support.faults.table import BEGIN, FAULTS, Row, rows_of, with_row
from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "faults.md"


def test_every_fault_has_a_row_and_none_left_a_process_or_failed_the_next_run():
    rows = rows_of(PAGE.read_text())
    assert tuple(rows) == FAULTS
    assert {outcome for outcome, *_ in rows.values()} <= {str(outcome) for outcome in Outcome}
    assert {(left, following) for *_, left, following in rows.values()} == {("0", "ok")}


def test_a_row_replaces_an_earlier_one_and_the_rest_of_the_page_stays():
    lines = "| segfault | unknown |  |  | 3 | - |\n| scancel | preempted | 0.2 | 0.5 | 0 | ok |\n"
    page = f"Before.\n\n{BEGIN}{lines}\nAfter.\n"
    row = Row("segfault", "segfault", 0.25, None, 0, "ok")
    assert with_row(page, row) == (
        f"Before.\n\n{BEGIN}| segfault | segfault | 0.2 |  | 0 | ok |\n"
        "| scancel | preempted | 0.2 | 0.5 | 0 | ok |\n\nAfter.\n"
    )
    added = with_row(page, Row("NaN in the weights", "nan_loss", None, 1.0, 0, "ok"))
    assert list(rows_of(added)) == ["segfault", "NaN in the weights", "scancel"]
