"""Answers of the doctor's pilot, as it writes them."""

from typing import Any


def exchange(nodes: list[str], seconds: float, level: str = "") -> dict[str, Any]:
    """Of two nodes of 8 H100 each: the bus bandwidth of an all-reduce is 7.2 times that of one adapter's send."""
    times = {"send": seconds, "all_reduce": seconds * 2 * 15 / 16 / 7.2}
    row = {"bytes": 2**30, "ranks": 16, "spread": 0.01}
    rows = [{"operation": name, **row, "seconds": took, "least_s": took} for name, took in times.items()]
    return {
        "kind": "exchange",
        "tier": "pair",
        "nodes": nodes,
        "rows": rows,
        "problem": "",
        "accused": [],
        "level": level,
    }
