"""How well the runs of some node counts predict those of others (`benchmarks.replay --fit --predict`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sweep.errors import Mistake, SweepError
from sweep.expressions import holds
from sweep.search.candidates import Bools, Candidates
from sweep.search.gaussian import Floats, Ints
from sweep.search.observations import Known
from sweep.search.saving import RecordedRun

TOP = (1, 3)
"""predicted best layouts of which the best counts, for the regrets"""


def selected(candidates: Candidates, condition: str) -> Bools:
    """The runs for which the condition holds. Raises SweepError."""
    columns = {**candidates.columns, "model": np.array([candidates.cell_names[cell][0] for cell in candidates.cells])}
    try:
        found: Bools = np.broadcast_to(np.asarray(holds(condition, columns), dtype=bool), len(candidates))
    except ValueError as error:
        raise SweepError(Mistake(f"{condition!r}: {error}", remedy="such as 'nodes <= 2'")) from error
    if not found.any():
        raise SweepError(Mistake(f"no run has {condition}"))
    return found


def forecast(recorded: RecordedRun, fit: Bools, predict: Bools) -> dict[str, Any]:
    """Learn from all ``fit`` runs, predict the ``predict`` runs: errors per cell and overall, as JSON values.

    ``mape``, ``median_error`` and ``bias``: mean and median absolute and mean relative error of tokens/s/GPU.
    ``sibling_mape``: the mean absolute error of another prediction of the same runs, from the measurement of the most
    similar other run of the cell, by how much faster or slower than that one each is expected to be; None for a cell's
    only run. ``spearman``: of the order within a cell; ``top_1_regret``, ``top_3_regret``: 1 - the best measured rate
    of the one or three best predicted runs over the cell's best. Overall: means over runs (errors) and over cells.
    """
    c = replace(recorded.candidates, by_size=True)
    known = Known(c)
    for index in np.flatnonzero(fit).tolist():
        rate, peak = recorded.tokens_per_second_per_gpu[index], recorded.peak_memory_bytes[index]
        outcome = recorded.outcomes[index]
        known.end(index, outcome, float(rate) if rate > 0 else None, float(peak) if peak > 0 else None)
    predicted = known.posterior().log_rates(np.arange(len(c)))
    order = predicted + np.log(np.maximum(known.posterior().success(np.arange(len(c))), 1e-9))
    asked = predict & ~fit
    cells = [_cell(recorded, predicted, order, np.flatnonzero(asked & (c.cells == i)), i) for i in np.unique(c.cells)]
    found = [cell for cell in cells if cell is not None]
    worked = np.flatnonzero(asked & recorded.worked)
    overall: dict[str, Any] = {"runs_fitted": int(fit.sum()), "runs_predicted": len(worked)}
    overall |= _errors(recorded, predicted, worked) if len(worked) else {}
    for name in ("spearman", *(f"top_{top}_regret" for top in TOP)):
        values = [cell[name] for cell in found if cell[name] is not None]
        overall[name] = float(np.mean(values)) if values else None
    return {"overall": overall, "cells": found}


def _cell(recorded: RecordedRun, predicted: Floats, order: Floats, rows: Ints, cell: int) -> Mapping[str, Any] | None:
    rates, worked = recorded.tokens_per_second_per_gpu, rows[recorded.worked[rows]]
    if not len(worked):
        return None
    model, nodes = recorded.candidates.cell_names[cell]
    best, ranked = float(rates[worked].max()), rows[np.argsort(-order[rows], kind="stable")]
    gained = np.where(recorded.worked[ranked], np.nan_to_num(rates[ranked]), 0.0)
    regrets = {f"top_{top}_regret": 1 - float(gained[:top].max()) / best for top in TOP}
    return {
        "model": model, "nodes": nodes, "runs": len(worked),
        **_errors(recorded, predicted, worked),
        "spearman": _spearman(predicted[worked], rates[worked]), **regrets,
    }  # fmt: skip


def _errors(recorded: RecordedRun, predicted: Floats, worked: Ints) -> dict[str, float | None]:
    """Of predicted logarithms of rates, of runs that worked."""
    measured = np.log(recorded.tokens_per_second_per_gpu[worked])
    errors = np.expm1(predicted[worked] - measured)
    found: list[Floats] = []
    for cell in np.unique(recorded.candidates.cells[worked]):
        mine = np.flatnonzero(recorded.candidates.cells[worked] == cell)
        if len(mine) > 1:
            off = predicted[worked[mine]] - measured[mine]
            found.append(np.expm1(off - off[_siblings(recorded.candidates, worked[mine])]))
    return {
        "mape": float(np.abs(errors).mean()),
        "median_error": float(np.median(np.abs(errors))),
        "sibling_mape": float(np.abs(np.concatenate(found)).mean()) if found else None,
        "bias": float(errors.mean()),
    }


def _siblings(candidates: Candidates, rows: Ints) -> Ints:
    """Of each row the place of the most similar other one."""
    near = candidates.kernel.columns(rows, rows)[-1]  # by all axes at once
    np.fill_diagonal(near, -1.0)
    found: Ints = near.argmax(axis=1)
    return found


def _spearman(left: Floats, right: Floats) -> float | None:
    """Rank correlation; None for fewer than three runs."""
    if len(left) < 3:
        return None
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (left, right)]
    correlations: Any = np.corrcoef(np.stack(ranks).astype(np.float64))
    return float(correlations[0, 1])
