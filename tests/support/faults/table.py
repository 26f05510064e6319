"""docs/data/faults.csv: a row for each fault with the test that acts it. Where SWEEP_FAULT_TABLE names the file, tests
write what they measured into their rows."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.slurm.services import machine_lock

TABLE = REPOSITORY / "docs" / "data" / "faults.csv"
MEASURED = ("outcome", "detect_s", "clean_s", "processes_left", "next_run")


def rows_of(text: str) -> dict[str, dict[str, str]]:
    """Fault -> its row."""
    return {row["fault"]: row for row in csv.DictReader(io.StringIO(text))}


def with_row(text: str, fault: str, measured: Sequence[str]) -> str:
    """The table with other measured cells in the row of a fault, which it has."""
    rows = rows_of(text)
    rows[fault].update(zip(MEASURED, measured, strict=True))
    file = io.StringIO()
    writer = csv.DictWriter(file, rows[fault], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows.values())
    return file.getvalue()


def note(
    fault: str, outcome: str, detect_s: float | None, clean_s: float | None, left: Sequence[str], following: str
) -> None:
    """Write what a fault cost. None: nothing to detect, or to clean. ``left``: processes of the sweep a minute later.
    ``following``: how the next run ended."""
    assert fault in rows_of(TABLE.read_text()), fault
    if path := os.environ.get("SWEEP_FAULT_TABLE"):
        seconds = ["" if value is None else f"{value:.1f}" for value in (detect_s, clean_s)]
        with machine_lock("fault-table"):
            text = Path(path).read_text()
            Path(path).write_text(with_row(text, fault, [outcome, *seconds, str(len(left)), following]))
