"""What the best configurations of jobs with failures get of their GPUs' time, as notes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd

from analysis.metrics import JOB, START, job_of, metric_named
from analysis.tables import items_of
from sweep.contract import LAYOUT
from sweep.physics.job import FAILURES_PER_GPU_DAY, SECONDS_PER_DAY, SEEN_FAILURES, count_interval, known_rate
from sweep.records.schema import HARDWARE

DAY = (
    *("useful steps", "checkpoint stalls", "steps slowed by writing", "lost work"),
    *("cold start", "restore", "waiting for the restart"),
)


def with_starts(rows: pd.DataFrame, key: pd.Series[int]) -> pd.DataFrame:
    """``rows`` with each phase of a start as long as in any run of the configuration (``key``), which is a cold one;
    ``cached_start_s``: the shortest of a run of the same layout that found all compiled code in the cache, else null.
    """
    phases = rows[[*START]].astype(float).where(rows["step_time_median_s"].notna())
    cached = rows[["model", "nodes", *LAYOUT]].assign(s=phases.sum(axis=1).where(rows["graphs_compiled"].eq(0)))
    cached = cached.groupby(["model", "nodes", *LAYOUT], dropna=False)["s"].transform("min")
    longest = phases.groupby(key).transform("max")
    return rows.assign(**dict(longest.items()), cached_start_s=cached)


def with_failure_rate(records: pd.DataFrame) -> pd.DataFrame:
    """All attempts with the failure rate of their sweep: as its site states it, else its own or the published one.

    ``failures_seen``: of how many it is; infinite of a stated one. Simulated attempts saw none. Records that have it
    stay as they are: a filter may have left out the failures that it counts.
    """
    if "failures_seen" in records:
        return records
    ran = ~records["simulated"].astype("boolean").fillna(False).astype(bool)
    sweeps = records["sweep_name"].astype(object).fillna("")
    days = (records["total_s"].astype(float) * records["gpus"].astype(float) / SECONDS_PER_DAY).where(ran, 0.0)
    failed = (records["outcome"].isin(HARDWARE) & ran).groupby(sweeps).sum()
    known = {name: known_rate(int(failed[name]), spent) for name, spent in days.groupby(sweeps).sum().items()}
    stated = records["failures_per_gpu_day"].astype(float)
    rate, seen = (sweeps.map({name: of[at] for name, of in known.items()}).astype(float) for at in (0, 1))
    return records.assign(failures_per_gpu_day=stated.fillna(rate), failures_seen=seen.where(stated.isna(), math.inf))


def rate_text(cell: Mapping[Hashable, Any]) -> str:
    """The failure rate of a cell's best, and where it is from."""
    rate, seen = float(cell["failures_per_gpu_day"]), float(cell["failures_seen"])
    text = f"{rate:.3g} failures per GPU-day"
    if seen == math.inf:
        return f"{text} (the site's)"
    if (rate, seen) == (FAILURES_PER_GPU_DAY, SEEN_FAILURES):
        return f"{text} (published, of Llama 3's training)"
    low, high = (end * rate / seen for end in count_interval(int(seen)))
    return f"{text} (this sweep's: {seen:.0f} in {seen / rate:,.0f} GPU-days, so {low:.3g} to {high:.3g})"


def day_of(best: pd.DataFrame) -> pd.DataFrame:
    """Where the time of each job goes: columns ``DAY``, shares that add up to 1."""
    job = job_of(best)
    training, checkpoints, lost, restarts = job.shares
    stalls = checkpoints * (job.stall_s / job.checkpoint_s).fillna(0.0)
    parts = best[["checkpoint_restore_s", "restart_time"]].astype(float).fillna(0.0)
    restore, waiting = (restarts * parts[name] / job.restart_s.where(job.restart_s > 0, 1.0) for name in parts)
    columns = (training, stalls, checkpoints - stalls, lost, restarts - restore - waiting, restore, waiting)
    return pd.DataFrame(dict(zip(DAY, columns, strict=True)))


def with_job_notes(best: pd.DataFrame, fastest: pd.DataFrame) -> pd.DataFrame:
    """``best`` with notes: checkpoint interval, shares of the time, and where another run has the fastest step.

    ``fastest``: the best by their steps. Each has one row per (model, nodes).
    """
    quickest = fastest.set_index(["model", "nodes"])["run_id"].to_dict()
    notes = []
    for cell, note in zip(best.to_dict("records"), _notes(best), strict=True):
        found = [*items_of(cell["notes"]), note]
        if (other := quickest.get((cell["model"], cell["nodes"]))) != cell["run_id"]:
            found.append(f"the fastest step is that of {other}, whose job gets less, or wrote no checkpoint")
        notes.append(found)
    return best.assign(notes=pd.Series(notes, index=best.index, dtype=object))


def _notes(best: pd.DataFrame) -> list[str]:
    job, metric = job_of(best), metric_named(JOB)
    likely = zip(*job.likely(best["value"], best["low"], best["high"], seen=best["failures_seen"]), strict=True)
    intervals = zip(job.interval_s, job.step_s, strict=True)
    rows = zip(intervals, zip(*job.shares, strict=True), likely, best.to_dict("records"), strict=True)
    return [
        f"a job with {rate_text(cell)}: a checkpoint each "
        f"{interval_s / step_s:,.0f} steps ({interval_s / 60:.3g} min); {training:.1%} of the time trains, "
        f"{checkpoints:.1%} goes to checkpoints, {sum(failures):.1%} to failures; {metric.text(low)} to "
        f"{metric.text(high)} with 90% probability; {_start_text(cell)}"
        for (interval_s, step_s), (training, checkpoints, *failures), (low, high), cell in rows
    ]


def _start_text(cell: Mapping[Hashable, Any]) -> str:
    imports_s, ranks_s, first_s, cached_s = (float(cell[name] or 0.0) for name in (*START, "cached_start_s"))
    text = f"a cold start takes {imports_s + ranks_s + first_s:.3g} s (imports {imports_s:.3g}, ranks and model "
    text += f"{ranks_s:.3g}, first step {first_s:.3g})"
    return text + (f", {cached_s:.3g} s where all compiled code was in the cache" if cached_s > 0 else "")
