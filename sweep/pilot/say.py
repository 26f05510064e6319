"""The pilot's own words, on its error file. That file is on the shared file system, which may refuse."""

from __future__ import annotations

import contextlib
import sys


def complain(text: str) -> None:
    """Say it where it can be said; a full or read-only file system must not end a pilot."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201
