"""`sweep status`: what ran, what runs, what failed and why."""

from __future__ import annotations

import dataclasses
import gc
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sweep.cli.command import SourcePath, SweepCommand
from sweep.cli.names import json_option
from sweep.cli.sources import chosen_sweep
from sweep.cli.terminal import console

if TYPE_CHECKING:
    from sweep.state.state import Attempt, RunState, SweepState
    from sweep.store.sweep import Sweep

FAILURES_SHOWN, LATEST_SHOWN = 20, 10
LAUNCHERS_ANSWER_S = 300.0
"""for a large sweep, reuse the launcher's search result up to this age instead of searching again"""
LINES = 100
"""height for a single print: it may be longer than the terminal, but the best runs of hundreds of cells are `best`'s"""


@click.command(cls=SweepCommand)
@click.argument("directory", metavar="[DIR_OR_ARCHIVE]", required=False, type=SourcePath())
@click.option("--watch", is_flag=True, help="Refresh the display until the sweep is done.")
@json_option
def status(directory: Path | None, watch: bool, as_json: bool) -> int:
    """Show a sweep's progress, from its journals alone: it needs no launcher, and does not query the scheduler.

    The time left is a range: half to twice the prediction until three attempts have ended, then by how much durations
    differed from predictions. It is unknown where nothing was predicted and no attempt has ended.

    \b
    Examples:
      sweep status
      sweep status sweeps/first --json
      sweep status --watch
    """
    if not watch:
        gc.disable()  # all that is read lives until the end: collection took a third of the time
    try:
        return _status(directory, watch=watch, as_json=as_json)
    finally:
        gc.freeze()
        gc.enable()


def _status(directory: Path | None, *, watch: bool, as_json: bool) -> int:
    from sweep.cli.live import live_view
    from sweep.library.sources import status as status_of

    sweep = status_of(chosen_sweep(directory).path, max_age_s=0.0 if watch else LAUNCHERS_ANSWER_S)
    if watch:
        with live_view() as show:
            show(sweep)
            while not sweep.at_rest:
                time.sleep(1.0)
                sweep.refresh()
                sweep.refresh_plans()
                show(sweep)
    else:
        click.echo(json.dumps(_document(sweep))) if as_json else _show(sweep)
    sweep.store_what_was_found()
    return 0


def _show(sweep: Sweep) -> None:
    from sweep.cli.live_picture import picture
    from sweep.cli.progress_text import node_time_texts, unmeasured_text
    from sweep.outcomes import Outcome
    from sweep.state.node_time import node_time
    from sweep.store import lease

    sweep_state, printer = sweep.sweep_state, console()
    launcher = lease.holder(sweep.directory)
    alive = f"launcher: {launcher}" if launcher else "no launcher runs"
    printer.print(f"{sweep.directory.path}; {alive}", soft_wrap=True)
    printer.print(picture(sweep, time.time(), height=LINES, width=printer.width))
    for line in node_time_texts(node_time(sweep_state, time.time())):
        printer.print(line, soft_wrap=True)
    failures = [each for each in _failures(sweep, sweep_state) if each[2].outcome is not Outcome.CANCELLED]
    for run_id, _, last in failures[:FAILURES_SHOWN]:
        text = f"{last.outcome}: {run_id} (attempt {last.number}): {last.message or ''}"
        printer.print(text, soft_wrap=True)
    if len(failures) > FAILURES_SHOWN:
        printer.print(f"… and {len(failures) - FAILURES_SHOWN} more: `sweep status --json`")
    for node, reason in sorted(sweep_state.excluded_nodes.items()):
        printer.print(f"node {node} is excluded: {reason}")
    if sweep_state.excluded_nodes and "waiting" in sweep.tally.counts():
        printer.print("runs that need excluded nodes wait: `sweep nodes release NODE…` uses them again", soft_wrap=True)
    if text := unmeasured_text(sweep.unmeasured(), sweep.directory.path):
        printer.print(text, soft_wrap=True)
    if sweep_state.cancelled:
        printer.print(f"cancelled; `sweep resume {sweep.directory.path}` continues")


def _failures(sweep: Sweep, sweep_state: SweepState) -> list[tuple[str, RunState, Attempt]]:
    """The runs that failed, with their last attempts, in the plan's order."""
    states = ((run.run_id, sweep_state.runs.get(run.run_id)) for run in sweep.runs)
    return [
        (run_id, state, last)
        for run_id, state in states
        if state and state.ok is None and (last := state.last) and last.outcome is not None
    ]


def _document(sweep: Sweep) -> dict[str, Any]:
    from sweep.cli.progress_text import delay_text, eta, saved
    from sweep.state.node_time import node_time
    from sweep.state.tally import elapsed_s
    from sweep.store import lease

    sweep_state, tally, now, skipped = sweep.sweep_state, sweep.tally, time.time(), sweep.skipped()
    held, used = tally.gpu_hours(now)
    saved_hours, saved_dollars = saved(sweep)
    return {
        "directory": str(sweep.directory.path),
        "launcher": lease.holder(sweep.directory),
        "name": sweep.grid.name,
        "executor": sweep.executor,
        "simulated": sweep.grid.simulated,
        "runs": len(sweep.runs),
        "counts": tally.counts(skipped),
        "eta": eta(sweep),
        "eta_s": tally.seconds_left(now, skipped),
        "eta_range_s": list(tally.range_left(now, skipped)) if tally.informed else None,
        "elapsed_s": elapsed_s(sweep_state, now),
        "gpu_hours": {"allocated": held, "attempts": used, "saved": saved_hours},
        "node_time_s": node_time(sweep_state, now),
        "saved_dollars": saved_dollars,
        "cancelled": sweep_state.cancelled,
        "unmeasured": sweep.unmeasured(),
        "submit_delayed": delay_text(sweep) or None,
        "cells": [
            {
                "model": m,
                "nodes": n,
                "runs": c.runs,
                "settled": c.done,
                "best_tokens_per_second_per_gpu": c.best,
                "best_run_id": c.winner,
            }
            for (m, n), c in tally.cells.items()
        ],
        "latest": [
            {"run_id": planned.run_id, "attempt": last.number, "outcome": str(last.outcome), "ended_at": last.ended_at}
            for planned, last in tally.latest(LATEST_SHOWN)
        ],
        "pilots": [dataclasses.asdict(pilot) for pilot in sweep_state.pilots.values()],
        "failures": [
            {
                "run_id": run_id,
                "attempt": last.number,
                "outcome": str(last.outcome),
                "message": last.message,
                "nodes": list(last.nodes),
                "retry": state.next_attempt() is not None,
            }
            for run_id, state, last in _failures(sweep, sweep_state)
        ],
        "excluded_nodes": sweep_state.excluded_nodes,
    }
