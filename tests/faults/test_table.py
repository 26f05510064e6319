"""docs/research/faults.md has a row for every fault, each with the test that acts it, and none of them failed."""

from sweep.outcomes import Outcome
from tests.support.faults.table import BEGIN, FAULTS, PAGE, Fault, Row, rows_of, with_row
from tests.support.paths import REPOSITORY

MEASURED = {name for name, fault in FAULTS.items() if not fault.outcome}


def test_every_fault_has_a_row_and_none_left_a_process_or_failed_the_next_run():
    rows = rows_of(PAGE.read_text())
    assert list(rows) == list(FAULTS)
    assert {rows[name][0] for name in MEASURED} <= {str(outcome) for outcome in Outcome}
    assert {(left, following) for *_, left, following in (rows[name] for name in MEASURED)} == {("0", "ok")}


def test_the_other_columns_are_those_of_the_list():
    """`python -m tests.support.faults.table` writes them."""
    page = PAGE.read_text()
    assert with_row(page) == page


def test_every_fault_is_acted_by_a_test():
    def missing(fault: Fault) -> bool:
        file, _, function = fault.acted.partition("::")
        return f"def {function}(" not in (REPOSITORY / "tests" / file).read_text()

    assert [name for name, fault in FAULTS.items() if missing(fault)] == []


def test_a_row_replaces_an_earlier_one_and_the_rest_of_the_page_stays():
    ranks = FAULTS["segfault"].acted
    lines = (
        "| segfault | ? | unknown |  |  | 3 | - | ? | ? |\n| scancel | ? | preempted | 0.2 | 0.5 | 0 | ok | ? | ? |\n"
    )
    page = f"Before.\n\n{BEGIN}{lines}\nAfter.\n"
    changed = with_row(page, Row("segfault", "segfault", 0.25, None, 0, "ok"))
    assert f"| segfault | `{ranks}` | segfault | 0.2 |  | 0 | ok | the attempt | none |\n" in changed
    assert (
        "| scancel | `faults/test_cluster.py::test_scancel` | preempted | 0.2 | 0.5 | 0 | ok | the attempt |" in changed
    )
    assert changed.startswith("Before.\n\n| fault |")
    assert changed.endswith("|\n\nAfter.\n")
    added = with_row(page, Row("NaN in the weights", "nan_loss", None, 1.0, 0, "ok"))
    assert [name for name in rows_of(added) if name in MEASURED] == ["segfault", "NaN in the weights", "scancel"]
