"""The list at the end of the tests: what this machine could not run, and the commands that would add it."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ADDED_BY = {
    "sudo make test": ("needs root", "need root", "Slurm", "browser", "mounted", "cgroup", "namespace", "bindfs"),
    "make test SWEEP_REFERENCE_DATA=FOLDER": ("SWEEP_REFERENCE_DATA",),
}
"""command -> words in the reason of a test that it would add (system-packages installs what that needs)"""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What this machine could not run, by reason, and the commands that would add it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(left_out(report.longrepr) for report in skipped)
    if reasons:
        terminalreporter.section("left out on this machine")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count} test{'s' if count > 1 else ''}: {reason}")
        for command, words in ADDED_BY.items():
            if command.startswith("sudo") and os.geteuid() == 0:
                continue  # what root could add is there: this machine does not allow the rest
            if named := [word for word in words if any(word in reason for reason in reasons)]:
                terminalreporter.write_line(f"this adds those for {', '.join(named)}:  {command}")


def left_out(skip: object) -> str:
    """The reason of a skipped test's report: (file, line, "Skipped: reason")."""
    text = str(skip[2] if isinstance(skip, tuple) else skip)
    return text.removeprefix("Skipped: ")
