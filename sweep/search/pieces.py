"""Work in pieces, which a search does between its choices. Pure."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Pieces: TypeAlias = Generator[None, None, T]
"""yields after each piece, and returns the result"""


def finished(work: Pieces[T]) -> T:
    """The result, once all that is left is done."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
