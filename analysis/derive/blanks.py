"""Why a cell of the heatmap has no best configuration, and what a search may have missed in it, as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from analysis.metrics import Metric
from analysis.tables import places_text
from sweep.errors import plural
from sweep.records.schema import INTERRUPTED, OUT_OF_MEMORY

BLANK_COLUMNS = ["model", "nodes", "status", "label", "reason"]


def explain_blanks(
    cells: pd.DataFrame,
    records: pd.DataFrame,
    plan: pd.DataFrame | None,
    metric: Metric,
    everything: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """``status``, ``label`` and ``reason`` of each given (model, nodes).

    ``records``: the attempt that counts of each run. ``plan``: candidates with status run or rejected, or None
    where the results came without one; its column ``skipped``, where it has one, holds why a run will not be started.
    ``everything``: the records before a filter took some away.
    """
    before = set() if everything is None else set(zip(everything["model"], everything["nodes"], strict=True))
    tried = dict(list(records.groupby(["model", "nodes"]))) if len(records) else {}
    planned = dict(list(plan.groupby(["model", "nodes"]))) if plan is not None and len(plan) else {}
    rows = []
    for model, nodes in cells.itertuples(index=False):
        verdict = _explain(tried.get((model, nodes)), planned.get((model, nodes)), plan is not None, metric)
        if (model, nodes) in before and (model, nodes) not in tried:
            verdict = ("filtered", "filtered", "its records do not meet the filter")
        rows.append((model, nodes, *verdict))
    return pd.DataFrame(rows, columns=BLANK_COLUMNS).astype(cells.dtypes.to_dict())


def _explain(
    tried: pd.DataFrame | None, planned: pd.DataFrame | None, has_plan: bool, metric: Metric
) -> tuple[str, str, str]:
    """(status, label, reason) of one blank cell."""
    waiting, skipped = _waiting(tried, planned)
    left = [f"{plural(waiting, 'run')} not run yet"] if waiting else []
    left += [f"{plural(number, 'run')} skipped ({reason})" for reason, number in sorted(skipped.items())]
    if tried is not None and len(tried):
        return _explain_tried(tried, left, metric)
    if left:
        return "not_run", "not run", "; ".join(left)
    if planned is not None and len(planned):
        return "no_layout", "no layout", f"no layout works: {_rejections(planned)}"
    where = "the grid has no candidate here" if has_plan else "the data has no run here"
    return "absent", "–", where


def _explain_tried(tried: pd.DataFrame, left: Sequence[str], metric: Metric) -> tuple[str, str, str]:
    """``left``: how many others of the cell have no record, and why."""
    counts = tried["outcome"].fillna("ok").value_counts()
    ok = int(counts.get("ok", 0))
    rest = "".join(f"; {one}" for one in left)
    every = {1: "the only run", 2: "both runs"}.get(len(tried), f"all {len(tried)} runs")
    runs = plural(len(tried), "run") if left else every
    if ok:
        return "unmeasured", "no value", f"{plural(ok, 'run')} ok, but without {metric.label}{rest}"
    stopped, failed = counts[counts.index.isin(INTERRUPTED)], counts[~counts.index.isin(INTERRUPTED)]
    if failed.empty:
        label = next(iter(stopped.index)) if len(stopped) == 1 else "not measured"
        return "unmeasured", label, f"not measured: {runs} {_outcomes(stopped)}{rest}"
    outcomes = set(failed.index)
    if outcomes <= OUT_OF_MEMORY:
        kind = "OOM"
    else:
        kind = next(iter(outcomes)).replace("_", " ") if len(outcomes) == 1 else "failed"
    label = kind if left or len(tried) == 1 or len(stopped) else f"all {kind}"
    if len(stopped):
        interrupted = ", ".join(f"{number} {outcome}" for outcome, number in stopped.items())
        return "failed", label, f"{plural(int(failed.sum()), 'run')} failed: {_outcomes(failed)}; {interrupted}{rest}"
    return "failed", label, f"{runs} failed: {_outcomes(failed)}{rest}"


def _outcomes(counts: pd.Series[int]) -> str:
    """The outcome, or each with its number."""
    words = [f"{number} {outcome}" if len(counts) > 1 else str(outcome) for outcome, number in counts.items()]
    return ", ".join(words)


def _waiting(tried: pd.DataFrame | None, planned: pd.DataFrame | None) -> tuple[int, dict[str, int]]:
    """Runs of the plan that have no record: how many are still to start, and how many will not, by reason."""
    if planned is None:
        return 0, {}
    runs = planned[planned["status"] == "run"]
    if tried is not None:
        runs = runs[~runs["run_id"].isin(tried["run_id"])]
    reasons = runs["skipped"].dropna() if "skipped" in runs else runs["run_id"].iloc[:0]
    return len(runs) - len(reasons), {str(reason): int(number) for reason, number in reasons.value_counts().items()}


def _rejections(planned: pd.DataFrame) -> str:
    """How many candidates were rejected, and the most common reason with one example of its text."""
    reasons = [str(text) for texts in planned.get("reasons", ()) if texts is not None for text in texts]
    many = f"{plural(len(planned), 'candidate')} rejected"
    if not reasons:
        return many
    reasons = [re.sub(r"^\w+: ", "", text) for text in reasons]
    kinds = pd.Series([re.sub(r"\d+(\.\d+)?", "#", text) for text in reasons])
    commonest = kinds.value_counts().index[0]
    example = reasons[int(kinds[kinds == commonest].index[0])]
    return f"{many}, most often: {example}" if len(set(kinds)) > 1 else f"{many}: {example}"


Missed = Mapping[str, float]
"""runs: number left out; gain: expected, of all of them, as a logarithm; chance: that one is over 3 % faster"""


def missed_by_cell(plan: pd.DataFrame | None, records: pd.DataFrame) -> dict[tuple[str, int], Missed]:
    """(model, nodes) -> what its skipped runs may have been. ``plan``: `analysis.load_plan`; ``records``: another
    sweep's among them may have measured such a run.

    The runs' errors are taken as independent. They are not, so the chance is rather too large.
    """
    if plan is None or "chance" not in plan:
        return {}
    found: dict[tuple[str, int], Missed] = {}
    skipped = plan[plan["chance"].notna() & ~plan["run_id"].isin(records["run_id"])]
    for (model, nodes), left in skipped.groupby(["model", "nodes"]):
        chance = 1 - float(np.prod(1 - left["chance"].to_numpy(dtype=np.float64)))
        found[str(model), int(nodes)] = {"runs": len(left), "gain": float(left["gain"].sum()), "chance": chance}
    return found


def missed_text(cells: Mapping[tuple[str, int], Missed]) -> str | None:
    """What may have been missed in the worst of the cells; None where none may be better."""
    if not any(missed["chance"] for missed in cells.values()):
        return None
    runs = sum(int(missed["runs"]) for missed in cells.values())
    worst = max(cells, key=lambda cell: (cells[cell]["chance"], cells[cell]["gain"]))
    chance, gain = cells[worst]["chance"], cells[worst]["gain"]
    return (
        f"Runs left out by prediction: {runs:,}. The chance that one of them is over 3 % faster than its cell's "
        f"best is at most {chance:.1%} ({places_text([worst], most=1)}), with an expected gain of {gain:.1%}."
    )
