"""Which record of an attempt counts, and which attempt of a run. Pure; for sweep state and results table."""

from __future__ import annotations

from collections.abc import Iterable

from sweep.outcomes import Outcome


def supersedes(new: Outcome, known: Outcome | None) -> bool:
    """Does a further record of an attempt replace the known one?

    ``lost`` is inferred by the launcher for a pilot that is gone: the pilot's own record replaces it, however late.
    """
    return known is None or new is not Outcome.LOST


def attempt_that_counts(attempts: Iterable[tuple[int, Outcome | None]], rerun_after: int) -> int | None:
    """The number of the attempt that is the run's result; None where there is none.

    The first that is ok; where a rerun was requested, the first ok one after it, once there is one. Without any ok one
    the last. ``attempts``: number and outcome of each. ``rerun_after``: how many had started when it was requested.
    """
    ordered = sorted(attempts)
    ok = [number for number, outcome in ordered if outcome is Outcome.OK]
    since_rerun = [number for number in ok if number > rerun_after]
    numbers = since_rerun or ok or [number for number, _ in ordered[-1:]]
    return numbers[0] if numbers else None
