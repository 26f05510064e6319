"""Health of nodes: which ones fail, and which hold slow ranks. Pure pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.derive.best import completed
from sweep.records.schema import NODE_FAULTS

if TYPE_CHECKING:
    import pandas as pd

HEALTH_COLUMNS = ["node", "attempts", "faults", "slow"]


def health(records: pd.DataFrame) -> pd.DataFrame:
    """One row per node: attempts, faults, and how often it held the slow rank."""
    rows = completed(records, "node_names", "slow_rank")
    rows = rows[rows["node_names"].notna()]
    like = (rows["pp"].fillna(1) == 1) & (rows["ep"].fillna(1) == 1)  # else its ranks do not have equal work
    at = rows["slow_rank"].where(like).astype(float) // rows["gpus_per_node"].astype(float)
    slow = [
        str(names[int(place)]) if 0 <= place < len(names) else None
        for place, names in zip(at, rows["node_names"], strict=True)
    ]
    one = rows[["node_names"]].assign(fault=rows["outcome"].isin(list(NODE_FAULTS)), slow_node=slow)
    one = one.explode("node_names").dropna(subset=["node_names"]).rename(columns={"node_names": "node"})
    one = one.assign(slow=one["node"] == one["slow_node"])
    table = one.groupby("node", sort=True).agg(
        attempts=("fault", "size"), faults=("fault", "sum"), slow=("slow", "sum")
    )
    return table.reset_index()
