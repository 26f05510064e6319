"""Texts on which a regular expression is slow if it can be, made from the expression itself by its parsed form."""

import itertools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sweep.diagnose.model import codes

Hostile = tuple[str, str]
"""(what comes once at the start, what is repeated)"""
ALWAYS = [*'aA10 .:-_/"\\[(=,@&?\n', '\\"', "a ", "a.", "a-", "1:", "a:", "[a] ", "\x1b["]
_EACH = {
    "DIGIT": "1", "NOT_DIGIT": "a ", "SPACE": " \t", "NOT_SPACE": "a1:-[.", "WORD": "a1_A", "NOT_WORD": " -:."
}  # fmt: skip


def hostile(pattern: re.Pattern[str]) -> list[Hostile]:
    """Repetitions of each part of the pattern, behind what precedes it in the pattern and alone.

    A part is what a quantifier repeats, and each row of neighbours, so that some are near misses of the whole.
    """
    tree = codes.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    return sorted({*_of(tree, ""), *(("", text) for text in ALWAYS)})


def text_of(one: Hostile, characters: int, end: str = "\x01") -> str:
    """The text at a length; ``end``: which the pattern rather does not match."""
    before, repeated = one
    return before + repeated * (1 + characters // len(repeated)) + end


def cpu_s(act: Callable[[], object], times: int = 1) -> float:
    """The CPU time of the fastest of so many calls."""
    return min(_once(act) for _ in range(times))


def grows_faster(act: Callable[[int], object], sizes: Sequence[int], negligible_s: float = 0.005) -> bool:
    """Whether a fourfold input takes more than eight times as long: a square takes sixteen times.

    ``sizes``: each four times the one before. It ends at the first size that shows it.
    """
    for small, large in itertools.pairwise(sizes):
        if cpu_s(lambda: act(large)) > negligible_s:  # noqa: B023 (called at once)
            fast, slow = cpu_s(lambda: act(small), 3), cpu_s(lambda: act(large), 3)  # noqa: B023
            if slow > max(negligible_s, 8 * fast):
                return True
    return False


def _once(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def _of(sequence: Iterable[Any], before: str) -> Iterator[Hostile]:
    items = list(sequence)
    parts = list(_parts(items))
    for first in range(len(parts)):
        for last in range(first, len(parts)):
            text = "".join(parts[first : last + 1])
            yield before + "".join(parts[:first]), text
            yield "", text
    for operation, value in items:
        if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            for text in _choices(value[2]):
                yield from ((before, text), ("", before + text), ("", text))
            yield from _of(value[2], before)
        elif operation is codes.SUBPATTERN:
            yield from _of(value[3], before)
        elif operation is codes.BRANCH:
            for alternative in value[1]:
                yield from _of(alternative, before)
        elif operation in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _of(value[1], before)
        before += _one(operation, value)


def _parts(items: list[Any]) -> Iterator[str]:
    """A match of the sequence, cut at its groups and quantifiers."""
    text = ""
    for operation, value in items:
        if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.BRANCH, codes.SUBPATTERN):
            yield from filter(None, (text, _one(operation, value)))
            text = ""
        else:
            text += _one(operation, value)
    if text:
        yield text


def _one(operation: Any, value: Any) -> str:
    """A text that the operation matches, as short as it may be."""
    if operation is codes.LITERAL:
        return chr(value)
    if operation in (codes.IN, codes.ANY, codes.NOT_LITERAL):
        return _choices([(operation, value)])[0]
    if operation is codes.SUBPATTERN:
        return _all(value[3])
    if operation is codes.BRANCH:
        return _all(value[1][0])
    if operation in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        return _all(value[2]) * value[0]
    return ""


def _all(sequence: Iterable[Any]) -> str:
    return "".join(_one(operation, value) for operation, value in sequence)


def _choices(sequence: Iterable[Any]) -> list[str]:
    """Different texts that the sequence matches: of a set several characters, of alternatives each."""
    items = list(sequence)
    if len(items) == 1:
        operation, value = items[0]
        if operation is codes.SUBPATTERN:
            return _choices(value[3])
        if operation is codes.BRANCH:
            return [_all(alternative) or "x" for alternative in value[1]][:8]
        if operation in (codes.IN, codes.ANY, codes.NOT_LITERAL):
            return _members(operation, value)
    return [text] if (text := _all(items)) else []


def _members(operation: Any, value: Any) -> list[str]:
    if operation is codes.ANY:
        return ["x", " ", "1"]
    items = value if operation is codes.IN else [(codes.LITERAL, value), (codes.NEGATE, None)]
    if any(kind is codes.NEGATE for kind, _ in items):
        escaped = {chr(each) for kind, each in items if kind is codes.LITERAL}
        return [text for text in 'a1 .:-_A/[("\\=' if text not in escaped and not _excluded(text, items)]
    found = []
    for kind, each in items:
        if kind is codes.CATEGORY:
            found += _EACH[str(each).removeprefix("CATEGORY_")]
        else:
            found += map(chr, each if kind is codes.RANGE else (each,))
    return list(dict.fromkeys(found))[:8]


def _excluded(text: str, items: Iterable[Any]) -> bool:
    kinds = [str(each).removeprefix("CATEGORY_") for kind, each in items if kind is codes.CATEGORY]
    return any(text in _EACH[kind] for kind in kinds)
