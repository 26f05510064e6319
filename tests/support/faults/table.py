"""The table of faults in docs/faults.md: the tests write their rows into the file that SWEEP_FAULT_TABLE names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.slurm.services import machine_lock

HEAD = ("fault", "outcome recorded", "s to detect", "s to clean", "processes left", "next run")
BEGIN = "| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|\n"
FAULTS = (
    "a rank sleeps indefinitely in iteration 3 (steady limit 8 s)",
    "the same, ignoring SIGTERM",
    "60 s first iteration, then 0.1 s: tolerated; then a hang, default limits",
    "a rank double-forks a setsid child that holds memory",
    "`torch.OutOfMemoryError` raised",
    "the kernel's OOM killer, in a memory cgroup",
    "`kill -9` of a rank",
    "segfault",
    "NaN in the weights",
    "import error",
    "a port in use",
    "disk full (small tmpfs)",
    "scancel",
    "job time limit",
    "a node's death",
    "the leader's node's death",
    "slurmd alone killed, back after 5 s",
    "slurmctld down for 10 s",
    "slurmctld down for 60 s",
    "slurmdbd down",
    "shared directory: new files meet a read-only mount, open ones a full disk, for 20 s",
    "shared directory: immutable, open files too, for 30 s",
    "shared directory: frozen, every write hangs, for 45 s",
    "`kill -9` of a launcher",
    "`kill -9` of launcher and leader",
    "`kill -9` of launcher and agent",
    "`kill -9` of launcher and zygote",
    "`kill -9` of launcher and rank",
    "`kill -9` of launcher and srun",
    "`kill -9` of launcher and slurmstepd of agents",
    "`kill -9` of launcher and slurmstepd of the leader",
    "`scancel -s TERM`: the steps alone are signalled",
    "an agent of 8 is cut off from its leader for 15 s",
    "an agent of 8 is cut off from its leader for 30 s",
    "an agent of 8 is cut off from its leader for 120 s",
    "an agent is stopped (SIGSTOP) for 30 s",
    "the leader is stopped for 30 s",
    "all processes of a pilot are stopped for 30 s",
    "`scontrol suspend` for 40 s",
    "`scontrol suspend` for 75 s",
)
"""every row, in the table's order: the acceptance criteria"""


@dataclass(frozen=True)
class Row:
    """What one fault cost. None: nothing to detect, or to clean."""

    fault: str
    outcome: str
    detect_s: float | None
    clean_s: float | None
    left: int
    """processes of the sweep a minute later"""
    following: str
    """how the next run ended"""

    def line(self) -> str:
        cells = [self.fault, self.outcome, _seconds(self.detect_s), _seconds(self.clean_s), str(self.left)]
        return "| " + " | ".join([*cells, self.following]) + " |"


def note(
    fault: str,
    outcome: str,
    detect_s: float | None,
    clean_s: float | None,
    left: Sequence[str],
    following: str,
) -> None:
    """Write the row of a fault, replacing an earlier one, where SWEEP_FAULT_TABLE names the page."""
    assert fault in FAULTS, fault
    page = os.environ.get("SWEEP_FAULT_TABLE")
    if page:
        row = Row(fault, outcome, detect_s, clean_s, len(left), following)
        with machine_lock("fault-table"):
            Path(page).write_text(with_row(Path(page).read_text(), row))


def with_row(page: str, row: Row) -> str:
    """The page with that row in its table, all rows in the order of FAULTS."""
    before, lines, after = _parts(page)
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    rows[row.fault] = row.line()
    return before + BEGIN + "".join(f"{rows[fault]}\n" for fault in FAULTS if fault in rows) + after


def rows_of(page: str) -> dict[str, list[str]]:
    """Fault -> the other cells of its row."""
    _, lines, _ = _parts(page)
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def _parts(page: str) -> tuple[str, list[str], str]:
    before, _, rest = page.partition(BEGIN)
    lines = rest.splitlines(keepends=True)
    count = next((place for place, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before, [line.rstrip("\n") for line in lines[:count]], "".join(lines[count:])


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
