"""Health of nodes: which ones fail, and which have slower ranks than the others. Pure pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.derive.best import completed, succeeded
from sweep.records.schema import NODE_FAULTS

RANK_COLUMNS = ["run_id", "attempt", "rank", "node", "ratio"]
HEALTH_COLUMNS = ["node", "attempts", "ok", "faults", "slow", "ratio"]


def rank_times(records: pd.DataFrame) -> pd.DataFrame:
    """One row per rank of each attempt that measured: node, rank, and ``ratio``: its time over the ranks' median.

    Ranks that wait for each other in collectives take about equal times: a ratio clearly above 1 is a rank whose
    whole step is longer, a small spread proves nothing.
    """
    rows = completed(records)
    if "rank_step_time_median_s" not in rows or "node_names" not in rows:
        return pd.DataFrame(columns=RANK_COLUMNS)
    rows = rows[succeeded(rows)]
    found = [part for row in rows.to_dict("records") if (part := _ranks_of(row)) is not None]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=RANK_COLUMNS)


def _ranks_of(row: Any) -> pd.DataFrame | None:
    times, nodes = row["rank_step_time_median_s"], row["node_names"]
    if times is None or nodes is None or np.ndim(times) == 0 or np.ndim(nodes) == 0:
        return None
    values = np.asarray(times, dtype=float)
    if len(values) < 2 or len(nodes) == 0 or not np.all(np.isfinite(values)):
        return None
    each = -(-len(values) // len(nodes))
    at = np.arange(len(values))
    names = np.asarray([str(node) for node in nodes], dtype=object)[at // each]
    columns = {"run_id": row["run_id"], "attempt": row["attempt"], "rank": at, "node": names}
    return pd.DataFrame({**columns, "ratio": values / np.median(values)})


def health(records: pd.DataFrame) -> pd.DataFrame:
    """One row per node, the worst first: attempts, ok, faults, how often it held the slow rank, and ``ratio``.

    ``ratio``: median over attempts of its slowest rank's time over the attempt's median; null where not measured.
    """
    rows = completed(records)
    if "node_names" not in rows:
        return pd.DataFrame(columns=HEALTH_COLUMNS)
    rows = rows[rows["node_names"].notna()]
    slow = _slow_nodes(rows)
    one = rows[["node_names"]].assign(
        ok=succeeded(rows).astype(bool), fault=rows["outcome"].isin(list(NODE_FAULTS)), slow_node=slow
    )
    one = one.explode("node_names").dropna(subset=["node_names"]).rename(columns={"node_names": "node"})
    if one.empty:
        return pd.DataFrame(columns=HEALTH_COLUMNS)
    one = one.assign(slow=one["node"] == one["slow_node"])
    table = one.groupby("node", sort=True).agg(
        attempts=("ok", "size"), ok=("ok", "sum"), faults=("fault", "sum"), slow=("slow", "sum")
    )
    ranks = rank_times(rows)
    worst = ranks.groupby(["run_id", "attempt", "node"])["ratio"].max()
    table["ratio"] = worst.groupby(level="node").median().astype(float) if len(worst) else float("nan")
    ordered = table.reset_index().sort_values(["slow", "ratio", "faults"], ascending=False, kind="stable")
    return ordered.reset_index(drop=True)


def _slow_nodes(rows: pd.DataFrame) -> list[str | None]:
    """Per attempt whose ranks have equal work, the node of its slow rank."""
    if "slow_rank" not in rows:
        return [None] * len(rows)
    found: list[str | None] = []
    like = (rows["pp"].fillna(1) == 1) & (rows["ep"].fillna(1) == 1)
    columns = (rows["slow_rank"].where(like), rows["node_names"], rows["gpus_per_node"])
    for rank, names, per_node in zip(*columns, strict=True):
        known = not pd.isna(rank) and not pd.isna(per_node) and per_node > 0
        at = int(rank) // int(per_node) if known else -1
        found.append(str(names[at]) if 0 <= at < len(names) else None)
    return found
