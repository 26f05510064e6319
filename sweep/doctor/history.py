"""Earlier runs of the doctor: what was found when."""

from __future__ import annotations

from pathlib import Path

from sweep.checks.check import Json
from sweep.errors import SweepError
from sweep.files import json_of


def earlier(directory: Path) -> list[dict[str, Json]]:
    """Reports of the runs in this directory, oldest first."""
    reports = []
    for path in sorted(directory.glob("*/report.json")):
        try:
            reports.append(json_of(path.read_text(), path))
        except (OSError, ValueError, SweepError):
            continue
    return reports
