"""docs/research/faults.md has a row for every fault, each with the test that acts it, and none of them failed."""

from sweep.outcomes import Outcome
from tests.support.faults.table import PAGE, rows_of, with_row
from tests.support.paths import REPOSITORY


def test_every_fault_is_acted_by_a_test_and_none_left_a_process_or_failed_the_next_run():
    rows = rows_of(PAGE.read_text())
    assert len(rows) >= 60
    for fault, (acted, outcome, *_, left, following, _, _) in rows.items():
        file, _, function = acted.strip("`").partition("::")
        assert f"def {function}(" in (REPOSITORY / "tests" / file).read_text(), fault
        assert (left, following) in (("0", "ok"), ("", "")), fault
        assert not left or outcome in set(Outcome), fault


def test_what_is_measured_replaces_what_was_and_the_rest_of_the_page_stays():
    page = PAGE.read_text()
    changed = with_row(page, "segfault", ["segfault", "99.5", "", "0", "ok"])
    assert rows_of(changed)["segfault"][1:6] == ["segfault", "99.5", "", "0", "ok"]
    others = (text.replace("99.5", "") for text in (page, changed))
    assert {**rows_of(changed), "segfault": None} == {**rows_of(page), "segfault": None}
    assert len([1 for one, other in zip(*(text.splitlines() for text in others), strict=True) if one != other]) == 1
