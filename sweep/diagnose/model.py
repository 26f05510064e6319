"""The types of diagnosis: how the ranks ended, the rules, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum, auto
from functools import cached_property
from typing import Any

from sweep.contract import Measurement
from sweep.diagnose.literals import literals
from sweep.outcomes import Outcome


@dataclass(kw_only=True)
class RankEnd:
    """All that its agent reported of one rank."""

    rank: int
    node: str
    measurement: Measurement | None = None
    failure: Mapping[str, Any] | None = None
    """the exception as ``sweep.contract.Progress.failed`` sends it: type, message, traceback"""
    exited: bool = False
    exit_code: int | None = None
    signal: int | None = None
    ended_at_s: float | None = None
    """seconds since the attempt's start; None if unknown"""
    killed_by_us: bool = False
    """the agent's own teardown ended it: its end is a consequence, not a cause"""
    log_tail: str = ""
    stacks: str = ""
    progress: str = ""
    """phase, iteration and last heartbeat, when it was ended"""


@dataclass(frozen=True)
class Diagnosis:
    """An outcome, the line that proves it and what to try. ``outcome`` is None if nothing failed."""

    outcome: Outcome | None
    evidence: str
    advice: str
    rank: int | None = None
    node: str | None = None


class Weight(IntEnum):
    """How strong a line is as evidence of the cause. The heaviest wins; among equals, the earliest."""

    SIGN = auto()
    """something failed; the line does not show what"""
    CONSEQUENCE = auto()
    """usually follows from a failure elsewhere; names the outcome only if nothing better is found"""
    SUSPECT = auto()
    """a cause, or a consequence of another rank's failure: the order in time decides"""
    CAUSE = auto()
    """explains the end by itself, even where its line comes late (kernel, Slurm and allocator report what they did)"""


@dataclass(frozen=True)
class LineRule:
    """One kind of line."""

    name: str
    outcome: Outcome
    weight: Weight
    expression: str
    """regular expression; case is ignored"""
    _: KW_ONLY
    advice: str
    guess: bool = False
    """applies only to bare text: if exit codes and kernel lines are known, they decide instead"""
    lasting: bool = False
    """counts even if iterations continue afterwards"""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled."""
        return re.compile(self.expression, re.IGNORECASE)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Lower-case texts of which every match holds one: the pattern is tried only near one."""
        return literals(self.expression)


@dataclass(frozen=True)
class Hit:
    """A line that a rule, or a fact, recognised."""

    outcome: Outcome
    weight: Weight
    evidence: str
    advice: str
    position: int = 0
    """offset in its text"""
    source: str = ""
    """the rule's name"""
    guess: bool = False
    lasting: bool = False
    order: tuple[float, ...] = ()
    """order in time among hits of several texts"""
    rank: int | None = None
    node: str | None = None
