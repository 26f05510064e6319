"""What each outcome cost: attempts and GPU-hours. Pure pandas."""

from __future__ import annotations

import pandas as pd

from analysis.derive.best import on_cpu, truth


def by_outcome(records: pd.DataFrame) -> pd.DataFrame:
    """Attempts and GPU-hours by outcome, ok first, then by decreasing cost.

    ``gpu_hours`` is the whole of an attempt, from its order to clean nodes, on all GPUs of its allocation; null where
    no attempt of that outcome has a time. Attempts that do not count (surplus) are a separate outcome.
    """
    outcome = records["outcome"].fillna("ok").astype(str)
    if "surplus" in records:
        outcome = outcome.mask(truth(records["surplus"]), "surplus")
    hours = gpu_hours(records)
    table = pd.DataFrame({"outcome": outcome, "gpu_hours": hours})
    table = table.groupby("outcome", sort=False)["gpu_hours"].agg(
        attempts="size", gpu_hours=lambda v: v.sum(min_count=1), timed="count"
    )
    table = table.reset_index().assign(first=lambda t: t["outcome"] != "ok")
    order = ["first", "gpu_hours", "attempts"]
    sorted_: pd.DataFrame = table.sort_values(order, ascending=[True, False, False], kind="stable")
    return sorted_.drop(columns="first").reset_index(drop=True)


def gpu_hours(records: pd.DataFrame) -> pd.Series[float]:
    """GPU-hours of each attempt; null where its time is not known."""
    if "total_s" not in records:
        return pd.Series(float("nan"), index=records.index)
    gpus = records["gpus"] if "gpus" in records else records["nodes"]
    hours: pd.Series[float] = records["total_s"].astype(float) * gpus.astype(float) / 3600
    return hours.where(hours >= 0)


def unit_of(records: pd.DataFrame, hours: float) -> tuple[str, float]:
    """(what such a time of these attempts is stated in, how many of these an hour has).

    GPU-hours or GPU-minutes; rank-hours or rank-minutes where all ran on CPUs.
    """
    span, many = ("hours", 1.0) if hours >= 1 else ("minutes", 60.0)
    return f"{'rank' if on_cpu(records) else 'GPU'}-{span}", many
