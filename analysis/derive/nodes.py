"""Health of nodes: which ones fail, and which hold slow ranks. Pure pandas."""

from __future__ import annotations

import pandas as pd

from analysis.derive.best import completed
from sweep.records.schema import NODE_FAULTS

HEALTH_COLUMNS = ["node", "attempts", "faults", "slow"]


def health(records: pd.DataFrame) -> pd.DataFrame:
    """One row per node: attempts, faults, and how often it held the slow rank."""
    rows = completed(records)
    if "node_names" not in rows:
        return pd.DataFrame(columns=HEALTH_COLUMNS)
    rows = rows[rows["node_names"].notna()]
    one = rows[["node_names"]].assign(fault=rows["outcome"].isin(list(NODE_FAULTS)), slow_node=_slow_nodes(rows))
    one = one.explode("node_names").dropna(subset=["node_names"]).rename(columns={"node_names": "node"})
    one = one.assign(slow=one["node"] == one["slow_node"])
    table = one.groupby("node", sort=True).agg(
        attempts=("fault", "size"), faults=("fault", "sum"), slow=("slow", "sum")
    )
    return table.reset_index()


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
