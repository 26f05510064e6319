"""The values of diagnosis: what is known of an attempt's end, the rules, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from sweep.outcomes import Outcome


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended."""

    rank: int
    node: str
    exit_code: int | None = None
    signal: int | None = None
    ended_at_s: float | None = None
    """seconds since the attempt's start; None where not known"""
    failure: Mapping[str, Any] | None = None
    """the exception as ``sweep.contract.Progress.failed`` sends it: type, message, traceback"""
    log_tail: str = ""
    killed_by_us: bool = False
    """the agent's own teardown ended it: its end is a consequence, not a cause"""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that is known of an attempt's end."""

    ranks: Sequence[RankEnd]
    slurm_state: str | None = None
    """the job's state in Slurm's words (OUT_OF_MEMORY, NODE_FAIL, …), where it is known"""
    kernel: Sequence[str] = ()
    """kernel lines of the attempt's nodes and time: Xid, OOM killer, segfaults"""
    verdict: Outcome | None = None
    """what the watcher already knows: hang, time_limit, node_fail, cancelled, preempted, …"""
    verdict_text: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """An outcome, the line that proves it and what to try. ``outcome`` is None where nothing failed."""

    outcome: Outcome | None
    evidence: str
    advice: str
    rank: int | None = None
    node: str | None = None


class Weight(IntEnum):
    """How much a line says about the cause. The heaviest wins; among equals, the earliest."""

    SIGN = 0
    """something failed; the line does not say what"""
    CONSEQUENCE = 1
    """usually follows from a failure elsewhere; names the outcome only if nothing better is found"""
    SUSPECT = 2
    """a cause, or what another rank's failure leads to: the order of time decides"""
    CAUSE = 3
    """explains the end by itself, even where its line comes late (kernel, Slurm and allocator say what they did)"""


@dataclass(frozen=True)
class LineRule:
    """One kind of line. ``keys`` (lower case) are looked for first; ``pattern`` is tried only on lines with a key."""

    name: str
    outcome: Outcome
    weight: Weight
    keys: tuple[str, ...]
    pattern: re.Pattern[str]
    advice: str
    guess: bool = False
    """true only of bare text: where exit codes and kernel lines are known, they decide instead"""
    lasting: bool = False
    """stands even if iterations go on afterwards"""


def rule(
    name: str,
    outcome: Outcome,
    weight: Weight,
    keys: str,
    pattern: str = "",
    *,
    advice: str,
    guess: bool = False,
    lasting: bool = False,
) -> LineRule:
    """A rule; ``keys`` are separated by ``|``, an empty pattern means that a key is enough. Case is ignored."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return LineRule(name, outcome, weight, tuple(keys.lower().split("|")), compiled, advice, guess, lasting)


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
    order: tuple[float, ...] = field(default=(0.0,))
    """place in time among hits of several texts"""
    rank: int | None = None
    node: str | None = None
