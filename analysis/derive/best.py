"""The best configuration of each cell, its interval, and what else is within noise of it.

A configuration's value is the median over its repeats. Its interval comes from its iterations: with a few of them
from the fastest to the slowest (five iterations cover the true median with probability 0.94), with many from the
order statistics that cover it with at least 0.9. Two configurations whose intervals overlap cannot be distinguished by
this data: a tie.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.derive.blanks import explain_blanks
from analysis.derive.confidence import least_lead, run_spread
from analysis.derive.job import with_failure_rate, with_job_notes, with_starts
from analysis.derive.swept import with_swept
from analysis.filters import keep, names_in
from analysis.metrics import DEFAULT_METRIC, JOB, JOB_COLUMNS, Metric, metric_named
from analysis.tables import items_of
from sweep.errors import Mistake, SweepError, natural
from sweep.records.schema import CONFIGURATION_NAMES, INTERRUPTED, OVERSUBSCRIBED

CELL = ["model", "nodes"]

SAME_WORK = ("sequence_length", "gpu", "routing")
"""Configurations of a cell that differ in these do other work, or on another machine: neither is ahead of the other"""

NEEDED: tuple[str, ...] = (
    *(
        "run_id",
        "sweep_name",
        "attempt",
        "repeat",
        "outcome",
        "final",
        "simulated",
        "predicted",
        "suspect",
        "stopped",
        "notes",
    ),
    *CONFIGURATION_NAMES,
    *("tokens_per_second_per_gpu", "tokens_per_second", "mfu", "hfu", "reported_mfu", "tflops_per_gpu"),
    *("step_time_median_s", "step_time_min_s", "step_time_max_s", "step_times_s"),
    *("peak_memory_bytes", "memory_kind", "flops_convention"),
    *("energy_j_per_token", "dollars_per_gpu_hour", "co2_g_per_kwh"),
    *JOB_COLUMNS,
    "total_s",
)
"""The columns that the functions here read; `load(source, NEEDED)` reads no more"""

MANY = 8
"""From this number of iterations on, order statistics are tighter than the extremes"""


POOLED: dict[str, str] = {
    **dict.fromkeys(("tokens_per_second_per_gpu", "tokens_per_second", "tflops_per_gpu", "mfu", "hfu"), "median"),
    **dict.fromkeys(("reported_mfu", "step_time_median_s", "energy_j_per_token"), "median"),
    "step_time_min_s": "min",
    "step_time_max_s": "max",
}
"""Columns that are of all repeats of a configuration. The first was chosen to be re-measured because it was fast"""


def truth(column: pd.Series[Any]) -> pd.Series[bool]:
    """Booleans of any type as plain ones; missing is false."""
    return column.astype("boolean").fillna(False).astype(bool)


def is_simulated(records: pd.DataFrame) -> bool:
    """Whether any row comes from a simulated workload."""
    return "simulated" in records and bool(truth(records["simulated"]).any())


def on_cpu(records: pd.DataFrame) -> bool:
    """Whether all ran on CPUs, where a rank represents a GPU."""
    return "gpu" in records and set(records["gpu"].dropna()) == {"cpu"}


def counting(records: pd.DataFrame) -> pd.DataFrame:
    """One row per run: the attempt that counts for it; where that is not known, every row counts."""
    return records[records["final"].astype("boolean").fillna(True).astype(bool)]


def completed(records: pd.DataFrame, *further: str) -> pd.DataFrame:
    """The records with every column that the functions here read, and these; what was absent is null.

    Raises SweepError where the model or the node count is absent.
    """
    lost = [name for name in CELL if name not in records]
    if lost:
        raise SweepError(Mistake(f"the records have no column {' and '.join(lost)}", remedy="load them whole"))
    absent = [name for name in dict.fromkeys((*NEEDED, *further)) if name not in records]
    if not absent:
        return records
    nothing = pd.DataFrame(np.full((len(records), len(absent)), None), index=records.index, columns=absent)
    return pd.concat([records, nothing], axis=1)  # at once: of columns that came one by one each later step copies all


def succeeded(records: pd.DataFrame) -> pd.Series[bool]:
    """Outcome ok; a foreign table may have no outcomes; then a value suffices."""
    return (records["outcome"] == "ok") | records["outcome"].isna()


def failed(records: pd.DataFrame) -> pd.Series[bool]:
    """Ended by a failure: not by success, nor by a user or the scheduler."""
    return ~succeeded(records) & ~records["outcome"].isin(INTERRUPTED)


def measured(records: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """One row per configuration that was measured, repeats pooled.

    Adds ``value`` (median over repeats), ``low`` and ``high`` (its interval), all in the metric's own unit,
    ``repeats`` (how many), ``oversubscribed_runs`` (how many of them on a host with more work than cores), and
    ``run_spread`` with ``spread_freedom`` of all repeats together. Speeds and times (``POOLED``) and notes are of all
    repeats of the configuration, the rest is of the one nearest to the median. Of a configuration that had lost and was
    stopped (``stopped``) the figures are of that run, unless another was measured in full.
    """
    records = with_failure_rate(completed(records)) if metric.name == JOB else records
    rows = counting(completed(records)).dropna(subset=CELL)
    rows = with_starts(rows, configuration_key(rows)) if metric.name == JOB else rows
    rows = rows.assign(value=metric.of(rows))
    rows = rows[succeeded(rows) & np.isfinite(rows["value"].to_numpy(float))]
    in_full = rows["stopped"].isna()
    rows = rows[in_full | ~in_full.groupby(configuration_key(rows)).transform("any")]
    rows = rows.assign(
        **_interval(rows, metric), oversubscribed=[OVERSUBSCRIBED in items_of(notes) for notes in rows["notes"]]
    )
    key = configuration_key(rows)
    spread, freedom = run_spread(rows, key)
    pooled = rows.groupby(key)
    summary = pooled.agg(
        value=("value", "median"), low=("low", "min"), high=("high", "max"), repeats=("value", "size"),
        oversubscribed_runs=("oversubscribed", "sum"),
    )  # fmt: skip
    distance = (rows["value"] - key.map(summary["value"])).abs()
    nearest = rows.assign(key=key, distance=distance).sort_values("distance", kind="stable").drop_duplicates("key")
    chosen = nearest.set_index("key").sort_index().drop(columns=["distance", "oversubscribed"])
    chosen = chosen.assign(**{name: summary[name] for name in summary}, run_spread=spread, spread_freedom=freedom)
    chosen = chosen.assign(**rows.astype(dict.fromkeys(POOLED, float)).groupby(key).agg(POOLED))
    chosen = chosen.assign(notes=_all_notes(rows, key).reindex(chosen.index).combine_first(chosen["notes"]))
    return chosen.reset_index(drop=True)


def best_per_cell(records: pd.DataFrame, metric: str = DEFAULT_METRIC) -> pd.DataFrame:
    """One row per (model, nodes) that has a measurement: the best configuration's record and its interval.

    Stopped configurations are not ranked. Adds to the columns of ``measured``: ``configurations`` (how many of
    the cell do the best's work: ``SAME_WORK``), ``stopped_rivals`` (of these, those that were stopped),
    ``of_other_work`` (how many do other work), ``ties`` (run_ids of those within noise of the best, best first),
    ``runner_up`` and ``runner_up_repeats`` (the second's value and number of runs) and ``least_lead`` (see
    ``analysis.derive.confidence``), all among the same work; ``swept``: words for what else than the layout differs in
    the table (``analysis.derive.swept``). ``oversubscribed_runs`` are those of the same work together.
    """
    chosen = metric_named(metric)
    rows = measured(records, chosen)
    order = rows.assign(order=-chosen.better * rows["value"], memory=rows["peak_memory_bytes"].astype(float))
    order = order.sort_values(["order", "memory", "run_id"], kind="stable").drop(columns=["order", "memory"])
    stopped, order = order[order["stopped"].notna()], order[order["stopped"].isna()]
    best = order.drop_duplicates(CELL).set_index(CELL)
    same = [*CELL, *SAME_WORK]
    lost = stopped.merge(best.reset_index()[same], on=same).groupby(CELL).size().reindex(best.index, fill_value=0)
    measured_here = order.groupby(CELL).size()
    work = order.groupby(same, sort=False, dropna=False).ngroup()
    order = order[work == work.groupby([order[name] for name in CELL]).transform("first")]
    cell = order.groupby(CELL)
    rest = order[order.duplicated(CELL)]
    second = rest.drop_duplicates(CELL).set_index(CELL)
    best = best.assign(
        configurations=cell.size() + lost,
        stopped_rivals=lost,
        of_other_work=measured_here - cell.size(),
        ties=_ties(rest.set_index(CELL), best, chosen),
        runner_up=second["value"].astype(float),
        runner_up_repeats=second["repeats"].astype(float),
        least_lead=least_lead(best, rest, chosen, CELL),
        oversubscribed_runs=cell["oversubscribed_runs"].sum(),
    )
    found = with_swept(best.reset_index(), rows)
    return with_job_notes(found, best_per_cell(records)) if metric == JOB else found


def cells(
    records: pd.DataFrame,
    plan: pd.DataFrame | None = None,
    metric: str = DEFAULT_METRIC,
    expression: str | None = None,
) -> pd.DataFrame:
    """One row per cell of models × node counts, blank ones included.

    ``status`` is best, failed, unmeasured, no_layout, not_run, filtered or absent; ``label`` a short text for the
    cell, ``reason`` the whole sentence. Columns of the best configuration are null where the cell is blank.
    ``expression``: what records must meet, and candidates as far as their columns allow.
    """
    records = with_failure_rate(completed(records)) if metric == JOB else completed(records)
    everything = counting(records)
    if expression is not None:
        records, plan = _filtered(records, plan, expression)
    best = best_per_cell(records, metric)
    cells = _cells(records, plan)
    joined = cells.merge(best, on=CELL, how="left", validate="one_to_one")
    blank = joined["value"].isna()
    reasons = explain_blanks(joined.loc[blank, CELL], counting(records), plan, metric_named(metric), everything)
    merged = joined.merge(reasons, on=CELL, how="left", validate="one_to_one")
    return merged.assign(status=merged["status"].fillna("best"))


def model_order(records: pd.DataFrame, models: Sequence[str]) -> list[str]:
    """Models from small to large: by parameters where known, else by the number in the name (1B before 80B)."""
    sizes = {}
    if "parameters_total" in records:
        known = records.dropna(subset=["parameters_total"])
        sizes = known.groupby("model")["parameters_total"].first().astype(float).to_dict()
    return sorted(models, key=lambda name: (sizes.get(name, _named_size(name)), natural(name)))


def in_order(rows: pd.DataFrame, cells: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Cells by the size of their models, as ``rows`` state it, then by nodes."""
    cells = list(cells)
    models = model_order(rows, sorted({model for model, _ in cells}))
    return sorted(cells, key=lambda cell: (models.index(cell[0]), cell[1]))


def _filtered(
    records: pd.DataFrame, plan: pd.DataFrame | None, expression: str
) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Records and candidates that meet the expression; a plan that lacks its columns keeps the cells of the records.

    Raises SweepError where no record meets it.
    """
    selected = keep(records, expression)
    if selected.empty:
        raise SweepError(Mistake(f"no record meets {expression!r}", path="--filter", remedy="widen it"))
    if plan is None:
        return selected, None
    if set(names_in(expression)) <= set(plan.columns):
        return selected, keep(plan, expression)
    wanted = plan["model"].isin(set(selected["model"])) & plan["nodes"].isin(set(selected["nodes"]))
    return selected, plan[wanted]


def _cells(records: pd.DataFrame, plan: pd.DataFrame | None) -> pd.DataFrame:
    """Every model against every node count that the records or the plan name."""
    parts = [frame[CELL] for frame in (records, plan) if frame is not None]
    seen = pd.concat(parts).dropna().drop_duplicates()
    models = model_order(records, list(dict.fromkeys(seen["model"])))
    nodes = sorted(int(n) for n in seen["nodes"].unique())
    grid = [(model, n) for model in models for n in nodes]
    cells = pd.DataFrame(grid, columns=CELL)
    return cells.astype({"nodes": records["nodes"].dtype, "model": records["model"].dtype})


def _all_notes(rows: pd.DataFrame, key: pd.Series[int]) -> pd.Series[Any]:
    """The notes of all runs of each configuration that has several, each once."""
    repeated = key.duplicated(keep=False)
    lists = rows.loc[repeated, "notes"].map(items_of).groupby(key[repeated]).sum()
    return lists.map(lambda notes: list(dict.fromkeys(notes))).astype(object)


def _ties(rest: pd.DataFrame, best: pd.DataFrame, metric: Metric) -> pd.Series[Any]:
    """For each cell the run_ids whose interval overlaps the best's. ``rest``: all but the best, sorted best first."""
    if metric.better == 1:
        tied = rest["high"] >= best["low"].reindex(rest.index)
    else:
        tied = rest["low"] <= best["high"].reindex(rest.index)
    tied &= (metric.time_like != 0) & ~truth(rest["predicted"])  # of a prediction the interval is no noise
    lists = rest.loc[tied, "run_id"].groupby(level=CELL).agg(list).to_dict()
    return pd.Series([lists.get(cell, []) for cell in best.index], index=best.index, dtype=object)


def _interval(rows: pd.DataFrame, metric: Metric) -> dict[str, Any]:
    """``low`` and ``high`` of each row, from the spread of its iterations; the value itself for an end not known."""
    value = rows["value"].to_numpy(float)
    if metric.time_like == 0:
        return {"low": value, "high": value}
    median = rows["step_time_median_s"].to_numpy(float)
    fast = rows["step_time_min_s"].to_numpy(float, copy=True)
    slow = rows["step_time_max_s"].to_numpy(float, copy=True)
    for at, times in enumerate(rows.get("step_times_s", ())):
        if np.size(times) >= MANY:
            ordered, skip = np.sort(np.asarray(times, dtype=float)), trimmed(np.size(times))
            fast[at], slow[at] = ordered[skip], ordered[-1 - skip]
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = [value * (median / end) ** metric.time_like for end in (fast, slow)]
    known = [value, *(np.where(np.isfinite(end), end, value) for end in ends)]
    return {"low": np.min(known, axis=0), "high": np.max(known, axis=0)}


@functools.cache
def trimmed(n: int) -> int:
    """How many of n sorted values may be left out at either end so that the rest covers the median with >= 0.9.

    The ends cover it with 1 - 2 P(X <= skip), X binomial (n, 1/2); normal approximation for large n.
    """
    if n > 200:
        return int(n / 2 - 1.645 * math.sqrt(n) / 2 - 1)
    tail, skip = 2.0 ** (1 - n), 0
    while (tail := tail + math.comb(n, skip + 1) * 2.0 ** (1 - n)) <= 0.1:
        skip += 1
    return skip


def configuration_key(rows: pd.DataFrame) -> pd.Series[int]:
    """A number per configuration: equal for repeats of one, also across sweeps."""
    many = bool((rows["repeat"].astype(float) > 0).any())
    if not many and "run_id" in rows and rows["run_id"].is_unique and rows["run_id"].notna().all():
        numbers = np.arange(len(rows))
    else:
        numbers = rows.groupby([*CONFIGURATION_NAMES], sort=False, dropna=False).ngroup().to_numpy()
    return pd.Series(numbers, index=rows.index)


def _named_size(name: str) -> float:
    """The number of parameters that a name such as `SmolLM3-3B` states; infinite where it states none."""
    units = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
    found = re.findall(r"(?<![A-Z0-9.])(\d+(?:\.\d+)?)([KMBT])(?![A-Z0-9])", name.upper())
    return float(found[-1][0]) * units[found[-1][1]] if found else math.inf
