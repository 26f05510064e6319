"""Where results go besides the sweep directory: experiment trackers. A tracker only writes what it is given.

Trackers are called on the launcher's side only, in a process of their own (`sweep track`), never by ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """One attempt as passed to a tracker. JSON values only."""

    key: str
    """always the same for one attempt of one sweep: 24 letters and digits"""
    name: str
    """for people: run_id.attempt; unique within the sweep"""
    group: str
    """the sweep's id"""
    config: Mapping[str, Any]
    """layout, environment, identity"""
    summary: Mapping[str, Any]
    """metrics, outcome, times; missing ones are omitted"""
    history: Sequence[Mapping[str, float]]
    """one row per iteration, warm-up included"""
    failed: bool


class TrackerError(Exception):
    """The tracker cannot be reached, or refused: trying again later may work."""


class Tracker(Protocol):
    """The interface of trackers."""

    @property
    def destination(self) -> str:
        """The destination, in one line: a run is written to one destination only once."""

    @property
    def hint(self) -> str:
        """How to view the results, in one line."""

    def write(self, run: TrackedRun, picture: Path | None = None) -> None:
        """Write one complete run; replaces the remains of an interrupted write under its key. Raises TrackerError.

        ``picture``: a PNG that goes with it under the name `heatmap`.
        """
