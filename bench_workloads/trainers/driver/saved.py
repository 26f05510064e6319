"""What a run's one checkpoint cost, by what its trainer's ranks print of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_workloads.trainers.adapter import ParsedLine

_UNITS = {"stall_s": 1.0, "stall_ms": 1e-3}


@dataclass
class Saved:
    """The first checkpoint, by lines in the order in which they came to this rank, with the times of its clock."""

    directory: Path | None
    """of rank 0, which states the size of its files"""
    begun_s: float | None = None
    whole_s: float | None = None
    stall_s: float | None = None
    """as the trainer states it, the greatest of its ranks"""
    steps: int = 0
    """that ended before it was whole"""
    last: int = 0
    """iteration that ended"""
    last_s: float = 0.0
    bytes: int = 0

    def add(self, parsed: ParsedLine, at_s: float) -> bool:
        """Take a line in. Whether it came since the checkpoint was begun: it is of no timed iteration."""
        if "begun" in parsed.checkpoint and self.begun_s is None:
            self.begun_s = at_s
        if parsed.iteration is not None and parsed.iteration > self.last and self.whole_s is None:
            self.last, self.last_s, self.steps = parsed.iteration, at_s, self.steps + (self.begun_s is not None)
        if self.begun_s is None or self.over:  # a trainer may write another one as it ends
            return self.over
        for name in parsed.checkpoint.keys() & _UNITS:
            self.stall_s = max(parsed.checkpoint[name] * _UNITS[name], self.stall_s or 0.0)
        if "whole" in parsed.checkpoint:
            self.whole_s = self.whole_s or at_s
        if self.over and self.directory is not None:
            self.bytes = sum(file.stat().st_size for file in self.directory.rglob("*") if file.is_file())
        return True

    @property
    def over(self) -> bool:
        """Whether all of it was printed."""
        return self.whole_s is not None and self.stall_s is not None

    def costs(self, step_s: float) -> dict[str, Any]:
        """For the record; empty where the trainer did not print all. ``step_s``: of a step while none is written."""
        if self.begun_s is None or self.whole_s is None or self.stall_s is None:
            return {}
        trained_s = self.last_s - self.begun_s - self.stall_s
        return {
            "checkpoint_stall_s": self.stall_s,
            "checkpoint_slowdown": trained_s / (self.steps * step_s) - 1 if self.steps else 0.0,
            "checkpoint_durable_s": self.whole_s - self.begun_s,
            "checkpoint_bytes": self.bytes,
        }
