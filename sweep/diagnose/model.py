"""The types of diagnosis: how the ranks ended, the rules, and the verdict.

Parts of the rules' patterns cost no more than a line's length, however often their texts are repeated in it:
``a.*b`` tries the rest of the line behind each ``a``: a line of many takes the square of its length.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import IntEnum, auto
from functools import cached_property
from typing import Any

from sweep.contract import Measurement
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
    lasting: bool = False
    order: tuple[float, ...] = ()
    """order in time among hits of several texts"""
    rank: int | None = None
    node: str | None = None


codes: Any = vars(re).get("_parser") or vars(re)["sre_parse"]
"""the standard library's parser of patterns, which has no public name; the second one before Python 3.11"""

_MOST = 12
"""exact texts of a part of a pattern that are followed together"""

_COMMON = frozenset({"error", "exception", "failed", "exceeded", "timed out"})
"""words of many lines in logs of healthy runs: any other text is more specific"""

_Texts = frozenset[str]


def literals(pattern: str) -> tuple[str, ...]:
    """Lower-case texts of which every match of ``pattern`` (case ignored) holds one; empty where there are none.

    Of the parts of a sequence the one with the longest texts counts; of alternatives all do.

    >>> literals(r"GPU \\d+ (?:is lost|fell off)|no device")
    ('fell off', 'is lost', 'no device')
    """
    _, needed = _of(codes.parse(pattern, re.IGNORECASE))
    return tuple(sorted(text for text in needed if not any(part in text for part in needed - {text})))


def _of(sequence: Iterable[Any]) -> tuple[_Texts, _Texts]:
    """(all texts that the sequence matches, empty if they are not known; texts of which each match holds one)."""
    run, needed, exact = frozenset({""}), frozenset[str](), True
    for operation, value in sequence:
        texts, within = _part(operation, value)
        if texts and len(run) * len(texts) <= _MOST:
            run = frozenset(a + b for a, b in itertools.product(run, texts))
            continue
        needed = max(needed, run, within, key=_worth)
        run, exact = texts if 0 < len(texts) <= _MOST else frozenset({""}), False
    return run if exact else frozenset(), max(needed, run, key=_worth)


def _part(operation: Any, value: Any) -> tuple[_Texts, _Texts]:
    """As ``_of``, of one operation."""
    if operation is codes.LITERAL:
        return frozenset({chr(value).lower()}), frozenset()
    if operation is codes.IN and all(kind is codes.LITERAL for kind, _ in value):
        return frozenset(chr(one).lower() for _, one in value), frozenset()
    if operation in (codes.AT, codes.ASSERT, codes.ASSERT_NOT):
        return frozenset({""}), frozenset()
    if operation is codes.SUBPATTERN:
        return _of(value[3])
    if operation is codes.BRANCH:
        parts = [_of(alternative) for alternative in value[1]]
        # Of alternatives of which one has none, nothing is known
        exact, needed = (frozenset[str]().union(*of) if all(of) else frozenset() for of in zip(*parts, strict=True))
        return exact, needed
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, repeated = value
        texts, needed = _of(repeated)
        if most == 1:
            return (texts | {""} if texts else texts), frozenset()
        return frozenset(), needed if least else frozenset()
    return frozenset(), frozenset()


def _worth(texts: _Texts) -> tuple[int, int]:
    """The longer the shortest, the rarer a line that holds one; then the fewer, the faster."""
    return min((2 if text.strip() in _COMMON else len(text) for text in texts), default=0), -len(texts)


def then(first: str, rest: str, gap: str = "*") -> str:
    """As ``first.*rest``, tried from one ``first`` up to the next alone: the last one before ``rest`` is enough."""
    return rf"(?:{first})(?:(?!{first}).){gap}?(?:{rest})"


def never_after(first: str, words: str) -> str:
    """As ``first(?!.*words)``: the last ``first`` of the line is enough."""
    return rf"(?:{first})(?:(?!{first}|{words}).)*$"


def either(*patterns: str) -> str:
    """Any of them."""
    return "|".join(patterns)
