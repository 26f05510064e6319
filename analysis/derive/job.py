"""What the best configurations of jobs with failures get of their GPUs' time, as notes."""

from __future__ import annotations

import math

import pandas as pd

from analysis.metrics import JOB, job_of, metric_named
from analysis.tables import items_of
from sweep.physics.job import SEEN_FAILURES


def with_job_notes(best: pd.DataFrame, fastest: pd.DataFrame) -> pd.DataFrame:
    """``best`` with notes: checkpoint interval, shares of the time, and where another run has the fastest step.

    ``fastest``: the best by their steps. Each has one row per (model, nodes).
    """
    quickest = fastest.set_index(["model", "nodes"])["run_id"].to_dict()
    notes = []
    for at, cell in enumerate(best.to_dict("records")):
        found = [*items_of(cell["notes"]), _note(best.iloc[[at]])]
        if (other := quickest.get((cell["model"], cell["nodes"]))) != cell["run_id"]:
            found.append(f"the fastest step is that of {other}, whose job gets less, or wrote no checkpoint")
        notes.append(found)
    return best.assign(notes=pd.Series(notes, index=best.index, dtype=object))


def _note(cell: pd.DataFrame) -> str:
    job, metric = job_of(cell), metric_named(JOB)
    seen = SEEN_FAILURES if cell["failures_per_gpu_day"].isna().item() else math.inf
    low, high = (float(end.item()) for end in job.likely(cell["value"], cell["low"], cell["high"], seen=seen))
    training, checkpoints, failures = (float(share.item()) for share in job.shares)
    interval_s = float(job.interval_s.item())
    return (
        f"a job with {float(job.failures_per_gpu_day.item()):.3g} failures per GPU-day: a checkpoint each "
        f"{interval_s / job.step_s.item():,.0f} steps ({interval_s / 60:.3g} min); {training:.1%} of the time trains, "
        f"{checkpoints:.1%} goes to checkpoints, {failures:.1%} to failures; {metric.text(low)} to {metric.text(high)} "
        "with 90% probability"
    )
