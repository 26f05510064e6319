"""Which run the user means by a part of its run_id."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.errors import Mistake, SweepError

CANDIDATES_SHOWN = 20
NEAREST_SHOWN = 5


def find_run(known: Sequence[str], words: str, file: Path, label: Callable[[str], str] = lambda _: "") -> str:
    """The one run_id that is ``words`` or has it as a part. ``label``: text after each run in a list of candidates.

    Raises SweepError that lists the candidates if there are several, or the nearest names if there is none.
    """
    if words in known:
        return words
    matching = [run_id for run_id in known if words in run_id]
    if not matching or not words:
        remedy = f"nearest: {', '.join(_nearest(known, words))}" if known else "the plan has no run"
        fact = f"no run has {words[:80]!r} in its run_id, and no directory has that name"
        raise SweepError(Mistake(fact, file=str(file), remedy=remedy))
    if len(matching) > 1:
        shown = "".join(f"\n  {run_id}{label(run_id)}" for run_id in matching[:CANDIDATES_SHOWN])
        rest = f"\n  … and {len(matching) - CANDIDATES_SHOWN} more" if len(matching) > CANDIDATES_SHOWN else ""
        fact = f"{words!r} is a part of {len(matching)} run_ids; give a longer part:{shown}{rest}"
        raise SweepError(Mistake(fact, file=str(file)))
    return matching[0]


def split_attempt(known: Sequence[str], words: str) -> tuple[str, int | None]:
    """A run and the attempt named with it, as in llama-8b-n4.2; None if no attempt is named."""
    match = re.fullmatch(r"(.+)\.([1-9]\d*)", words)
    if match is None or any(words in run_id for run_id in known):
        return words, None
    return match[1], int(match[2])


def _nearest(known: Sequence[str], words: str) -> list[str]:
    """The run_ids most similar to the words; only parts as long as the words are compared, since users type a part.

    So ``sweep.errors.nearest``, which compares whole names, would find none.
    """
    near = difflib.SequenceMatcher(b=words.lower(), autojunk=False)

    def likeness(run_id: str) -> float:
        near.set_seq1(run_id[: len(words) + 2].lower())
        return -near.quick_ratio()

    return sorted(known, key=likeness)[:NEAREST_SHOWN]
