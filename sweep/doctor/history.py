"""Earlier runs of the doctor: what was found when."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from sweep.checks.check import Json
from sweep.errors import Mistake, SweepError
from sweep.files import json_of

_SPAN = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def parse_since(text: str, now: float) -> float:
    """Unix seconds of "7d", "12h" or "2026-11-20" (local time). Raises SweepError."""
    if found := re.fullmatch(r"(\d+)([mhdw])", text):
        return now - int(found[1]) * _SPAN[found[2]]
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%d"))
    except ValueError:
        remedy = "write 7d, 12h or 2026-11-20"
        raise SweepError(Mistake(f"{text!r} is no time", path="--since", remedy=remedy)) from None


def earlier(directory: Path, since: float) -> list[dict[str, Json]]:
    """Reports of the runs in this directory that began after that, oldest first."""
    reports = []
    for path in sorted(directory.glob("*/report.json")):
        try:
            values = json_of(path.read_text(), path)
        except (OSError, ValueError, SweepError):
            continue
        if float(values.get("began_at") or 0) >= since:
            reports.append({**values, "directory": str(path.parent)})
    return reports


def line(report: Mapping[str, Json]) -> str:
    """One run in a line: when, where, whether all was fit, who was excluded, the rates."""
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(str(report.get("began_at") or 0))))
    nodes, excluded, rates = report.get("nodes"), report.get("exclude"), report.get("rates")
    count = len(nodes) if isinstance(nodes, list) else 0
    text = f"{at}  {report.get('site')}  {count} node{'s' * (count != 1)}  "
    text += "fit" if report.get("fit") else "unfit"
    if isinstance(excluded, dict) and excluded:
        text += f"  exclude {', '.join(sorted(excluded))}"
    if isinstance(rates, dict) and isinstance(rates.get("matmul_flops"), dict):
        shown = ", ".join(
            f"{dtype} {float(str(rate)) / 1e12:.3g} TFLOP/s" for dtype, rate in rates["matmul_flops"].items()
        )
        text += f"  {shown}"
    return text
