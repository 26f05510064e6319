"""What a user did wrong, said once and completely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """One mistake in the user's input: the fact, where it stands, and the way on."""

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
