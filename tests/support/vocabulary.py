"""Private words of earlier versions and the standard ones that replace them: `make lint` finds none of the former.

    python -m tests.support.vocabulary [FILE…]

Words without an ordinary technical use are forbidden everywhere. Words of ordinary English are forbidden as parts of
identifiers, or in the phrases in which they had a private meaning.
"""

from __future__ import annotations

import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY

EVERYWHERE = {
    r"anew": "again, from scratch",
    r"alike|likes": "similar, equal, the same",
    r"barren": "unproductive",
    r"beside": "alongside, next to, concurrent with",
    r"borne": "tolerated",
    r"deaf|hear|hears|heard": "unresponsive; last heartbeat",
    r"doubt|doubts": "probability, uncertainty",
    r"for ever": "indefinitely",
    r"hindrance|hindrances": "reason_not_rerunnable",
    r"hopeless": "infeasible",
    r"leftovers?": "leaked files, remaining processes",
    r"lent|lend|lends": "provided",
    r"own fault": "config fault",
    r"pardoned|pardons": "cleared",
    r"stands(?! (?:for|out)\b)|stood": "is, exists",
    r"strays?": "stale processes",
    r"told|tells?": "reports, reported; informs",
    r"twins?": "duplicates",
    r"whoever": "the caller, a process that",
    r"anybody|nobody": "no process, unexpected",
}
"""regular expression over whole words, in any letter case -> the standard words"""

PHRASES = {
    r"(?:nodes?|ranks?|runs?|pilots?) at work": "running",
    r"(?:cold|warm) (?:image|start|starts|rank|ranks)": "without preload; preloaded zygote",
    r"in (?:its|their|his|other) (?:own )?words?": "as it reports, as text",
    r"in words": "as text",
    r"(?:borrowed|learned) limits?": "observed start limits",
    r"folds? (?:over|again)|the fold": "the state built from the events; rebuild",
    r"fell silent|falls? silent|is silent|silent (?:pilot|leader|rank|node|agent)s?": "timed out, unresponsive",
    r"settled? (?:the |an |its |lost )?attempts?": "marks attempts lost",
    r"gives? back": "returns",
    r"none but|to be had|makes? it known": "only; available; reports",
}
"""the same in comments, strings and pages, but not as identifiers"""

IDENTIFIERS = {
    r"beats?": "heartbeat",
    r"books?": "StringTable",
    r"borrowed": "observed",
    r"charge[ds]?": "report",
    r"cold|warm(?! ?up)": "without preload; preloaded",
    r"complains?|says?|said": "log_error, print, report",
    r"fold(?:ed|s)?": "build, rebuild",
    r"judge[ds]?|look(?:s|ed)?(?! up)": "check, poll",
    r"kept": "stored, retained, selected",
    r"settle[ds]?|settling": "mark_lost; done",
    r"silent": "unresponsive",
    r"squares": "cells",
    r"stand|trials?": "exists; verdict; attempt",
    r"pardon": "clear",
}
"""parts of Python names, in addition to the words of EVERYWHERE (`heard_at` has the parts heard and at)"""

NAMES = {"World": "SweepState", "FEW": "MIN_RUNS", "least": "min_…", "lose": "mark_lost"}
"""whole Python names"""

FORMATS = {
    "beat": "the kind of a rank's message to its agent",
    "beats": "key of `sweep status --json`",
    "beside": "key of a record's extra_json",
    "heard_at": "column of pilots.parquet",
    "pardon": "action of `sweep nodes`",
    "settled": "key of `sweep status --json`",
    "silent_s": "field of the event pilot_silent",
    "squares": "parameter of the workload matmul: square matrices",
}
"""names in files, messages and commands, which stay as they are: allowed as whole names, as whole
strings and in backquotes"""

PLACES = ("sweep", "analysis", "bench_workloads", "benchmarks", "templates", "docs", "examples", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
SUFFIXES = frozenset({".py", ".md", ".j2", ".yaml", ".toml", ""})
SKIPPED = (
    "tests/compatibility/recorded/finished",
    "tests/compatibility/recorded/unfinished",
    "tests/support/vocabulary.py",
    "tests/project/test_vocabulary.py",
)
"""written by an earlier version; and the list itself with its test"""


@dataclass(frozen=True)
class Found:
    """A private word, and where it is."""

    path: Path
    line: int
    word: str
    standard: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r} is a private word; standard: {self.standard}"


def _whole(patterns: dict[str, str]) -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(rf"(?<!\w)(?:{p})(?!\w)", re.IGNORECASE), standard) for p, standard in patterns.items()]


_TEXT = _whole({**EVERYWHERE, **PHRASES})
_PARTS = _whole({**EVERYWHERE, **IDENTIFIERS})


def in_text(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, counted from 0, word, standard words) of each private word of a page, a comment or a string."""
    for pattern, standard in _TEXT:
        for match in pattern.finditer(text):
            quotes = text[max(0, match.start() - 1) : match.start()] + text[match.end() : match.end() + 1]
            if match[0] not in FORMATS or quotes not in ("``", '""', "''"):
                yield text.count("\n", 0, match.start()), match[0], standard


@functools.cache
def in_identifier(name: str) -> tuple[tuple[str, str], ...]:
    """(word, standard words) of each private word that is a part of a Python name."""
    return tuple(_in_identifier(name))


def _in_identifier(name: str) -> Iterator[tuple[str, str]]:
    parts = " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name))
    for pattern, standard in _PARTS:
        if (match := pattern.search(parts)) and name not in FORMATS:
            yield match[0], standard
    if name in NAMES:
        yield name, NAMES[name]


def in_file(path: Path) -> list[Found]:
    """Every private word of a file."""
    text = path.read_text()
    if path.suffix != ".py":
        return [Found(path, 1 + line, word, standard) for line, word, standard in in_text(text)]
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        line = token.start[0]
        if token.type == tokenize.NAME:
            found += [Found(path, line, *pair) for pair in in_identifier(token.string)]
        elif token.type not in (tokenize.OP, tokenize.NUMBER) and not token.string.isspace():
            found += [Found(path, line + below, *pair) for below, *pair in in_text(token.string)]
    return found


def files(root: Path) -> list[Path]:
    """Every file that is checked: the product, the tests and the documentation."""
    trees = [path for place in PLACES for path in (root / place).rglob("*")]
    named = [path for path in trees if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts]
    skipped = tuple(str(root / name) for name in SKIPPED)
    ours = [path for path in named if not str(path).startswith(skipped)]
    return sorted([*ours, *(root / page for page in PAGES if (root / page).exists())])


def main(names: list[str]) -> int:
    """Print every private word, and return the exit status."""
    found = [one for path in (map(Path, names) if names else files(REPOSITORY)) for one in in_file(path)]
    print("\n".join(map(str, found)) or "no private words")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
