"""At a sweep's end: the finalists of each cell are planned once more, so that the winner rests on more than one run."""

from __future__ import annotations

from sweep.launcher.launcher import Launcher
from sweep.search.finalists import room
from sweep.store.extend import extend, repeats_of


def plan_finalists(launcher: Launcher) -> None:
    """Extend the sweep by a repeat of each finalist that has none, where its grid asks for it: up to a share of the
    runs that the strategy and the budget started.

    Call it when nothing waits. Raises OSError, SweepError.
    """
    sweep = launcher.sweep
    share = sweep.grid.finalists_share
    if not share:
        return
    repeats = [planned.run().repeat >= sweep.grid.repeats for planned in sweep.runs]
    began = launcher.followed.sweep_state.runs.keys()
    asked_for = sum(run.run_id in began for run, again in zip(sweep.runs, repeats, strict=True) if not again)
    left = room(share, asked_for, sum(repeats))
    if again := launcher.followed.finalists_to_repeat(share)[:left]:
        launcher.lease.check()
        extend(sweep.directory, sweep.grids[-1], repeats_of(sweep, again))
        launcher.followed.refresh_plans()
