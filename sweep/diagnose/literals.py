"""The literal texts without which a pattern cannot match: a quick search for them finds where to try it."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
from collections.abc import Iterable
from functools import reduce
from typing import Any

codes: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
"""the standard library's parser of patterns, which has no public name"""

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
        exact = frozenset[str]() if not all(texts for texts, _ in parts) else _union(texts for texts, _ in parts)
        return exact, _union(needed for _, needed in parts) if all(needed for _, needed in parts) else frozenset()
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, repeated = value
        texts, needed = _of(repeated)
        if most == 1:
            return (texts | {""} if texts else texts), frozenset()
        return frozenset(), needed if least else frozenset()
    return frozenset(), frozenset()


def _union(many: Iterable[_Texts]) -> _Texts:
    return reduce(frozenset.union, many, frozenset())


def _worth(texts: _Texts) -> tuple[int, int]:
    """The longer the shortest, the rarer a line that holds one; then the fewer, the faster."""
    return min((2 if text.strip() in _COMMON else len(text) for text in texts), default=0), -len(texts)
