"""Runs from rows: canonical JSON and run_id, as ``sweep.contract.Run`` makes them, for many rows at once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweep.contract import LAYOUT, LAYOUT_NUMBERS, Layout, Run
from sweep.inputs.grid import Grid
from sweep.planning.expand import AxisProduct

VARYING = (*LAYOUT, "dtype", "compile", "params", "env", "repeat", "further")
"""what differs between the runs of one product"""


def identities(grid: Grid, product: AxisProduct, rows: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, str]]:
    """(run_id, run_json) of each row. ``rows``: the VARYING columns; params, env and further already as JSON text."""
    template_of = {text: _template(grid, product, json.loads(text)) for text in set(rows["further"])}
    order = next(iter(template_of.values()))[1] if template_of else []
    texts = [_json_texts(name, rows[name]) for name in order]
    slugs = _slugs(product, rows)
    for slug, text, values in zip(slugs, rows["further"], zip(*texts, strict=True), strict=True):
        run_json = template_of[text][0] % values
        yield f"{slug}-{hashlib.sha256(run_json.encode()).hexdigest()[:16]}", run_json


def _template(grid: Grid, product: AxisProduct, further: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The canonical JSON of the runs with a hole for each varying value, and the order of the holes."""
    holes: dict[str, Any] = {name: f"\x00{name}\x00" for name in VARYING if name != "further"}
    run = Run(
        workload=grid.workload,
        model=product.row,
        shape=product.shape.stated(),
        nodes=product.nodes,
        gpus_per_node=product.gpus_per_node,
        sequence_length=product.sequence_length,
        warmup_iterations=grid.warmup_iterations,
        iterations=grid.iterations,
        layout=Layout(**{name: holes[name] for name in LAYOUT}, **further),
        **{name: hole for name, hole in holes.items() if name not in LAYOUT},
    )
    parts = re.split(r'"\\u0000(\w+)\\u0000"', run.canonical_json())
    return "%s".join(part.replace("%", "%%") for part in parts[::2]), parts[1::2]


def _json_texts(name: str, values: Sequence[Any]) -> list[str]:
    if name in ("params", "env"):
        return list(values)
    known: dict[Any, str] = {}
    return [known[v] if v in known else known.setdefault(v, json.dumps(v)) for v in values]


def _slugs(product: AxisProduct, rows: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """The readable part of each run_id: that of ``Run.run_id``."""
    example = Run(
        workload="",
        model=product.row,
        shape={},
        nodes=product.nodes,
        gpus_per_node=1,
        sequence_length=1,
        layout=Layout(),
    )
    head = example.run_id.split("-dp1-tp1-pp1-")[0]
    for dp, tp, pp, cp, ep, zero, mbs, gas in zip(*(rows[name] for name in LAYOUT_NUMBERS), strict=True):
        middle = (f"-cp{cp}" if cp > 1 else "") + (f"-ep{ep}" if ep > 1 else "")
        yield f"{head}-dp{dp}-tp{tp}-pp{pp}{middle}-mbs{mbs}-gas{gas}-z{zero}"
