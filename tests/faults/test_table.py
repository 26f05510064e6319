"""docs/data/faults.csv has a row for every fault, each with the test that acts it, and none of them failed."""

from sweep.outcomes import Outcome
from tests.support.faults.table import TABLE, rows_of
from tests.support.paths import REPOSITORY


def test_every_fault_is_acted_by_a_test_and_none_left_a_process_or_failed_the_next_run():
    rows = rows_of(TABLE.read_text())
    assert len(rows) >= 60
    for fault, row in rows.items():
        file, _, function = row["acted_by"].partition("::")
        assert f"def {function}(" in (REPOSITORY / "tests" / file).read_text(), fault
        assert (row["processes_left"], row["next_run"]) in (("0", "ok"), ("", "")), fault
        assert not row["processes_left"] or row["outcome"] in set(Outcome), fault
