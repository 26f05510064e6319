"""What is known of a sweep now."""

from __future__ import annotations

from pathlib import Path

from sweep.library.sources import opened
from sweep.store.follow import FollowedSweep
from sweep.store.sweep import open_sweep


def status(directory: Path | str, *, max_age_s: float = 0.0) -> FollowedSweep:
    """The sweep with its state, sums (``tally``) and search, from its journals alone; ``refresh`` brings it up to date.

    ``max_age_s``: how old a running launcher's search result may be that is used again. Raises SweepError where there
    is no sweep.
    """
    followed = FollowedSweep(open_sweep(opened(directory)), max_age_s=max_age_s)
    followed.refresh()
    return followed
