"""What the choice of nodes does to a configuration's speed, by its repeats on several sets of nodes. Pure pandas."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.derive.best import completed, configuration_key, counting, succeeded
from analysis.derive.swept import LONGEST, object_in
from analysis.tables import items_of
from sweep.contract import LAYOUT
from sweep.errors import natural
from sweep.physics.groups import PACKED, PLACEMENT
from sweep.physics.statistics import variance_ratio_chance

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("run_id", "model", "nodes", *LAYOUT, "configuration", "asked", "node_set", "switches", "ratio")


def placed(records: pd.DataFrame) -> pd.DataFrame:
    """One row per run of each configuration that was measured on several sets of nodes.

    ``asked``: the grid's ``placement``, ``packed`` where it has none: configurations that differ by it alone are one.
    ``node_set``: their names in order. ``switches``: how many leaf switches they are on, null where not known.
    ``ratio``: the run's speed over the median of its configuration's runs.
    """
    rows = counting(completed(records, "node_names", "leaf_switches"))
    rows = rows[
        succeeded(rows) & rows["node_names"].map(items_of).astype(bool) & (rows["step_time_median_s"].astype(float) > 0)
    ]
    variables = [object_in(text) for text in rows["env_json"]]
    asked = [str(found.pop(PLACEMENT, PACKED))[:LONGEST] for found in variables]
    rows = rows.assign(env_json=[json.dumps(found, sort_keys=True) for found in variables], asked=asked)
    rows = rows.assign(
        configuration=configuration_key(rows.drop(columns="run_id")),
        node_set=[", ".join(sorted(map(str, names), key=natural)) for names in rows["node_names"]],
        switches=[_different(names) for names in rows["leaf_switches"]],
    )
    several = rows.groupby("configuration")["node_set"].transform("nunique") > 1
    rows = rows[several]
    times = rows["step_time_median_s"].astype(float)
    ratio = times.groupby(rows["configuration"]).transform("median") / times
    return rows.assign(ratio=ratio)[list(COLUMNS)].reset_index(drop=True)


def _different(switches: Any) -> float:
    """How many there are; NaN where the switch of a node is not known."""
    if not items_of(switches) or any(name is None for name in switches):
        return math.nan
    return float(len(set(switches)))


def against_packed(runs: pd.DataFrame) -> dict[str, tuple[float, int]]:
    """Placement that was asked for -> (median speed over that of the same configuration packed, of how many)."""
    medians = runs.groupby(["configuration", "asked"])["ratio"].median().unstack()
    if PACKED not in medians:
        return {}
    ratios = {str(name): (medians[name] / medians[PACKED]).dropna() for name in medians if name != PACKED}
    return {name: (float(found.median()), len(found)) for name, found in ratios.items() if len(found)}


@dataclass(frozen=True)
class Spread:
    """How much runs of one configuration differ, as standard deviations of the logarithm of their speed."""

    within: float
    """between runs on the same nodes; NaN where no set of nodes has two"""
    between: float
    """that the choice of nodes adds; NaN where ``within`` is not known"""
    chance: float
    """of such differences between sets of nodes if the choice did nothing (F test); 1 where it cannot be tested"""


def spread(runs: pd.DataFrame) -> Spread:
    """Variance components of the runs of ``placed``: sets of nodes within configurations (Searle, Casella and
    McCulloch, Variance Components, 1992, section 3.6).
    """
    logs = runs["ratio"].astype(float).map(math.log)
    by_set = logs.groupby([runs["configuration"], runs["node_set"]])
    by_configuration = logs.groupby(runs["configuration"])
    means, sizes = by_set.transform("mean"), by_set.size()
    inside = len(runs) - len(sizes)
    among = len(sizes) - by_configuration.ngroups
    if inside <= 0 or among <= 0:
        return Spread(math.nan, math.nan, 1.0)
    within = float(((logs - means) ** 2).sum()) / inside
    above = float(((means - by_configuration.transform("mean")) ** 2).sum()) / among
    squares = (sizes**2).groupby(level=0).sum() / sizes.groupby(level=0).sum()
    runs_per_set = (len(runs) - float(squares.sum())) / among
    ratio = above / within if within > 0 else (math.inf if above > 0 else math.nan)
    added = max(0.0, (above - within) / runs_per_set)
    return Spread(math.sqrt(within), math.sqrt(added), variance_ratio_chance(ratio, among, inside))


def by_node_set(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per set of nodes, the slowest first: ``runs``, ``switches``, and ``low``, ``ratio`` and ``high``: the
    smallest, median and greatest speed over its configuration's median.
    """
    groups = runs.groupby("node_set", sort=True)
    table: pd.DataFrame = groups.agg(
        runs=("ratio", "size"),
        switches=("switches", "first"),
        low=("ratio", "min"),
        ratio=("ratio", "median"),
        high=("ratio", "max"),
    ).reset_index()
    return table.sort_values("ratio", kind="stable").reset_index(drop=True)


def widest(runs: pd.DataFrame, most: int) -> Sequence[int]:
    """The configurations whose runs differ most, that first."""
    logs = runs["ratio"].astype(float).map(math.log)
    groups = logs.groupby(runs["configuration"])
    ranges = (groups.max() - groups.min()).sort_values(ascending=False, kind="stable")
    return [int(number) for number in ranges.index[:most]]
