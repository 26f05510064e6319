"""Errors in the user's input, all reported at once."""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
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
    """The user's input is wrong: every mistake at once. The command line prints them and exits with the code."""

    exit_code = 2
    """2: the input is wrong; 1, of a subclass: the work failed"""

    def __init__(self, mistakes: Sequence[Mistake] | Mistake | str) -> None:
        if isinstance(mistakes, str):
            mistakes = Mistake(mistakes)
        self.mistakes: tuple[Mistake, ...] = (mistakes,) if isinstance(mistakes, Mistake) else tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


def plural(number: int, thing: str) -> str:
    """1 run, 2,000 runs."""
    return f"{number:,} {thing}{'s' * (number != 1)}"


def natural(name: str) -> list[int | str]:
    """A key by which m2 comes before m10: texts and whole numbers in turn."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split(r"(\d+)", name))]


def first_names(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """n1, n2 and 6 more."""
    return separator.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


_WHAT_HELPS = {
    errno.EACCES: "check its permissions and those above it, or name another path",
    errno.EPERM: "check its permissions and those above it, or name another path",
    errno.EROFS: "name a path on a file system that can be written",
    errno.ENOSPC: "free space there, or name another path; nothing was changed",
    errno.EDQUOT: "free space in your quota, or name another path; nothing was changed",
    errno.EFBIG: "raise the limit of a file's size (`ulimit -f`); nothing was changed",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EISDIR: "name a file",
    errno.ENOTEMPTY: "name another path",
    errno.ELOOP: "its symbolic links lead in a circle",
    errno.EIO: "the device failed: see the kernel's log",
    errno.ESTALE: "the file server lost it: try again",
}
"""error number -> the remedy of a file that the user names"""


def file_mistake(error: OSError) -> Mistake | None:
    """What the operating system says of a file that the user named; None where the error is of something else."""
    if error.errno not in _WHAT_HELPS:
        return None
    if error.errno == errno.ENOENT and error.filename is None:  # of getcwd(2)
        return Mistake("the working directory is gone", remedy="change to one that exists")
    path = None if error.filename is None else str(error.filename)
    shown = path if path is None or len(path) <= 200 else f"{path[:200]}…"
    return Mistake((error.strerror or "not usable").lower(), file=shown, remedy=_WHAT_HELPS[error.errno])


def log_error(text: str) -> None:
    """Print to stderr if possible; a full or read-only file system must not end the process."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def nearest(word: str, choices: Iterable[str], otherwise: str | None = None) -> str:
    """A remedy: names that are part of the word or that it abbreviates, near misses, what holds it, else choices."""
    known, asked = sorted(choices), word.lower()
    parts = {name: re.findall(r"[a-z0-9.]+", name.lower()) for name in known if name[:1].isalpha()}
    whole = set(re.findall(r"[a-z0-9.]+", asked))
    close = sorted((n for n, own in parts.items() if own and whole.issuperset(own)), key=lambda n: -len(parts[n]))[:3]
    if not close and 1 < len(word) < 4:
        close = [n for n, own in parts.items() if own[1:] and asked.startswith("".join(p[0] for p in own))]
    near = difflib.get_close_matches(asked, [k.lower() for k in known], n=3, cutoff=0.6)
    close = close or sorted((k for k in known if k.lower() in near), key=lambda k: near.index(k.lower()))
    close = close or [k for k in known if len(word) > 2 and asked in k.lower()][:3]
    if close:
        return f"did you mean {' or '.join(close)}?"
    if otherwise is not None:
        return otherwise
    shown = ", ".join(known[:40]) + (", …" if len(known) > 40 else "")
    return f"choose from: {shown}" if known else "there are no choices"
