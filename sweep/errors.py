"""Errors in the user's input, all reported at once."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One mistake in the user's input: the fact, where it is, and the remedy."""

    fact: str
    file: str | None = None
    line: int | None = None
    path: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        where = ": ".join(part for part in (place, self.path) if part)
        text = f"{where}: {self.fact}" if where else self.fact
        return f"{text} ({self.remedy})" if self.remedy else text


class SweepError(Exception):
    """The user's input is wrong: every mistake at once. The command line prints them and exits 2."""

    def __init__(self, mistakes: Sequence[Mistake] | Mistake | str) -> None:
        if isinstance(mistakes, str):
            mistakes = Mistake(mistakes)
        self.mistakes: tuple[Mistake, ...] = (mistakes,) if isinstance(mistakes, Mistake) else tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


def log_error(text: str) -> None:
    """Print to stderr if possible; a full or read-only file system must not end the process."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def nearest(word: str, choices: Iterable[str], otherwise: str | None = None) -> str:
    """A remedy for an unknown word: the near misses, else ``otherwise``, else the choices (the first 40)."""
    known = sorted(choices)
    near = difflib.get_close_matches(word.lower(), [k.lower() for k in known], n=3, cutoff=0.6)
    close = sorted((k for k in known if k.lower() in near), key=lambda k: near.index(k.lower()))
    if close:
        return f"did you mean {' or '.join(close)}?"
    if otherwise is not None:
        return otherwise
    shown = ", ".join(known[:40]) + (", …" if len(known) > 40 else "")
    return f"choose from: {shown}" if known else "there are no choices"
