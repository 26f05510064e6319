"""What allocated nodes did over time (measuring, starting, failed, clearing, idle, lost), and what each outcome cost:
attempts and GPU-hours. Pure pandas.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.derive.best import on_cpu, truth

SEGMENT = ["source", "pilot", "node", "state", "begin", "end"]
"""state: what a held node does. measuring: warm-up and timed iterations of an attempt that is ok. running: an attempt
that has no record yet. starting: import, rendezvous, build and the first iteration of an attempt that is ok. failed: an
attempt that is not ok. clearing: from the last result to a clean node. idle: no attempt. lost: the node failed, or its
pilot timed out."""


def now_of(allocations: pd.DataFrame, attempts: pd.DataFrame | None) -> float:
    """The last time in the tables: until then a pilot that has not ended is drawn."""
    frames = [allocations[["allocated_at", "ended_at", "gone_at", "heard_at"]]]
    if attempts is not None:
        frames.append(attempts[["started_at", "ended_at"]])
    return float(max((frame.max().max() for frame in frames if len(frame)), default=np.nan))


def held(allocations: pd.DataFrame, now: float) -> pd.DataFrame:
    """One row per (pilot, node) that was held: ``begin``, ``end``, and ``sound_until``, after which it is lost.

    A pilot that reported its end held its nodes until then. One that timed out held them until its job was found
    gone or its wall time was over; from its last event on they are lost.
    """
    rows = allocations.dropna(subset=["node", "allocated_at"]).reset_index(drop=True)
    begin = rows["allocated_at"].astype(float)
    limit = begin + rows["time_limit_s"].astype(float).fillna(np.inf)
    gone = rows["gone_at"].where(rows["gone_at"] >= begin)  # a job given up that started after all
    settled = np.fmin(gone.fillna(np.inf), limit)
    end = rows["ended_at"].fillna(settled.clip(upper=now))
    unresponsive = rows["ended_at"].isna() & (gone.notna() | (limit < now))
    last_heartbeat = rows["heard_at"].fillna(begin).where(unresponsive, np.inf)
    sound = np.fmin(last_heartbeat, rows["lost_at"].fillna(np.inf))
    end = np.maximum(end, begin)
    return rows[["source", "pilot", "node"]].assign(begin=begin, end=end, sound_until=np.clip(sound, begin, end))


def segments(allocations: pd.DataFrame, attempts: pd.DataFrame | None) -> pd.DataFrame:
    """What each held node did, without gaps or overlaps from its allocation to its end.

    ``allocations``: as ``analysis.load_allocations`` gives them, ``attempts``: as ``analysis.load_attempts``. Columns
    source, pilot, node, state, begin and end (unix s).
    """
    nodes = held(allocations, now_of(allocations, attempts))
    busy = _busy(nodes, attempts)
    lost = nodes.assign(state="lost").drop(columns="begin").rename(columns={"sound_until": "begin"})
    idle = _idle(nodes, busy)
    table = pd.concat([frame[SEGMENT] for frame in (busy, idle, lost)])
    table = table[table["end"] > table["begin"]]
    return table.sort_values(["source", "pilot", "node", "begin"], kind="stable").reset_index(drop=True)


def _busy(nodes: pd.DataFrame, attempts: pd.DataFrame | None) -> pd.DataFrame:
    """Segments of attempts, each on each of its nodes, inside the time in which the pilot held the node soundly."""
    if attempts is None or attempts.empty or nodes.empty:
        return pd.DataFrame(columns=SEGMENT).astype({"begin": float, "end": float})
    attempts = attempts.astype(dict.fromkeys(("started_at", "steady_at", "measured_at", "ended_at"), float))
    one = attempts.explode("node_names").rename(columns={"node_names": "node"}).dropna(subset=["node", "started_at"])
    one = one.rename(columns={"ended_at": "attempt_end"})
    one = one.merge(nodes, on=["source", "pilot", "node"], how="inner")
    end = one["attempt_end"].fillna(np.inf)
    edges = [one["started_at"], one["steady_at"], one["measured_at"], end]
    ok, running = one["outcome"] == "ok", one["outcome"].isna()
    parts = [one.assign(state="running", begin_=edges[0], end_=end)[running]]
    for state, low, high in (("starting", 0, 1), ("measuring", 1, 2), ("clearing", 2, 3)):
        begin, finish = edges[low].fillna(end), edges[high].fillna(end)
        parts.append(one.assign(state=state, begin_=begin, end_=finish)[ok])
    parts.append(one.assign(state="failed", begin_=edges[0], end_=end)[~ok & ~running])
    table = pd.concat(parts)
    low, high = table["begin"], table["sound_until"]
    clipped = table.assign(begin=np.clip(table["begin_"], low, high), end=np.clip(table["end_"], low, high))
    return clipped.loc[clipped["end"] > clipped["begin"], SEGMENT]


def _idle(nodes: pd.DataFrame, busy: pd.DataFrame) -> pd.DataFrame:
    """The gaps between attempts, from the allocation to the end of the sound time."""
    key = ["source", "pilot", "node"]
    ends = nodes.assign(begin_=nodes["sound_until"], end_=nodes["sound_until"])
    table = pd.concat([busy.assign(begin_=busy["begin"], end_=busy["end"]), ends], ignore_index=True)
    table = table.sort_values([*key, "begin_", "end_"], kind="stable")
    starts = table[key].merge(nodes[[*key, "begin"]], on=key, how="left")["begin"].to_numpy(float)
    before = table.groupby(key)["end_"].cummax().groupby([table[k] for k in key]).shift()
    begin = before.fillna(pd.Series(starts, index=table.index))
    gaps: pd.DataFrame = table[key].assign(state="idle", begin=begin.astype(float), end=table["begin_"].astype(float))
    return gaps[gaps["end"] > gaps["begin"]]


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
