"""What is known of an attempt and its ranks when it has ended: values, for the record and the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sweep.contract import Measurement, Run
from sweep.diagnose.model import Diagnosis
from sweep.outcomes import Outcome
from sweep.pilot.leader.nodes import Link


@dataclass
class RankReport:
    """What the leader knows of one rank."""

    node: str
    measurement: Measurement | None = None
    failure: dict[str, str] | None = None
    """type, message and traceback"""
    exited: bool = False
    exit_code: int | None = None
    signal: int | None = None
    ended_at_s: float | None = None
    killed_by_us: bool = False
    tail: str = ""
    stacks: str = ""
    progress: str = ""
    """phase, iteration and last beat, when it was ended"""


@dataclass
class AttemptResult:
    """How an attempt ended, for the record and the log."""

    diagnosis: Diagnosis
    message: str | None
    ranks: list[RankReport]
    times_s: dict[str, float]
    not_cleaned: dict[str, list[str]] = field(default_factory=dict)
    accused: tuple[str, ...] = ()
    """the nodes that the outcome names"""
    removed: dict[str, list[str]] = field(default_factory=dict)
    """node -> files of the attempt that had to be removed from /dev/shm"""

    @classmethod
    def none(cls, run: Run, links: Sequence[Link], outcome: Outcome, message: str) -> AttemptResult:
        """Of an attempt of which nothing but its end is known."""
        ranks = [RankReport(links[rank // run.gpus_per_node].node) for rank in range(run.gpus)]
        return cls(Diagnosis(outcome, message, "", None, None), message, ranks, {})
