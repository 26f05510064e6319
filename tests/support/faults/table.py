"""The table in docs/research/faults.md: a row for each fault with the test that acts it. Where SWEEP_FAULT_TABLE names
the page, the tests write what they measured into their rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.slurm.services import machine_lock

HEAD = "| fault | acted by | outcome | s to detect | s to clean | processes left | next run | lost | accused |\n"
PAGE = REPOSITORY / "docs" / "research" / "faults.md"


def rows_of(page: str) -> dict[str, list[str]]:
    """Fault -> the other cells of its row."""
    table = page.partition(HEAD)[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]
    return {name: rest for name, *rest in cells}


def with_row(page: str, fault: str, measured: Sequence[str]) -> str:
    """The page with other measured cells (outcome to next run) in the row of a fault, which it has."""
    acted, *cells = rows_of(page)[fault]
    before, after = (" | ".join([fault, acted, *new, *cells[5:]]) for new in (cells[:5], measured))
    assert page.count(f"| {before} |\n") == 1, before
    return page.replace(f"| {before} |\n", f"| {after} |\n")


def note(
    fault: str,
    outcome: str,
    detect_s: float | None,
    clean_s: float | None,
    left: Sequence[str],
    following: str,
) -> None:
    """Write what a fault cost. None: nothing to detect, or to clean. ``left``: processes of the sweep a minute later.
    ``following``: how the next run ended."""
    assert fault in rows_of(PAGE.read_text()), fault
    if page := os.environ.get("SWEEP_FAULT_TABLE"):
        seconds = ["" if value is None else f"{value:.1f}" for value in (detect_s, clean_s)]
        with machine_lock("fault-table"):
            text = Path(page).read_text()
            Path(page).write_text(with_row(text, fault, [outcome, *seconds, str(len(left)), following]))
