"""Requests of a grid that the workload or the site cannot meet: user errors, not rejected candidates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sweep.contract import DERIVED, Workload
from sweep.errors import SweepError, nearest
from sweep.inputs.axes import AUTO, shown
from sweep.inputs.grid import AXES, COLUMNS, DEFAULTS, Grid, variables_of
from sweep.inputs.site import Site
from sweep.inputs.validation import check
from sweep.inputs.yaml_lines import Path, Problem
from sweep.physics.catalogue import MODELS
from sweep.plugins import WORKLOAD

LONGEST_TEXT = 1 << 16
"""bytes of a parameter's text: every run of the plan and every record has a copy"""
_ROUTING = re.compile(r"skewed:\d{1,2}(\.\d{1,4})?|(?!skewed$)[^:]*")
"""a skewed routing has an exponent, and the others have none"""


def problems_of(grid: Grid, site: Site, workload: Workload) -> list[Problem]:
    """Every request of the grid that no plan can meet."""
    return [*_problems_with_workload(grid, workload), *_nodes(grid, site)]


def _problems_with_workload(grid: Grid, workload: Workload) -> list[Problem]:
    """Requests that the grid's workload cannot meet."""
    return [
        *parameter_problems(grid.params, workload),
        *_choices(grid, workload),
        *_points(grid, workload),
        *_names(grid, workload),
    ]


def parameter_problems(params: Mapping[str, Sequence[Any]], workload: Workload) -> Iterator[Problem]:
    """Names that the workload lacks, and values of another type than its default. ``params``: name -> values."""
    for name, values in sorted(params.items()):
        path: Path = ("params", name)
        if name not in workload.params:
            fact = f"the workload {workload.name} has no parameter {name!r}"
            yield Problem(path, fact, nearest(name, workload.params))
            continue
        for value in values:
            if (problem := _unfit(value, workload.params[name])) is not None:
                yield Problem(path, problem)
            elif isinstance(value, str) and len(value) > LONGEST_TEXT:
                yield Problem(path, f"a text of over {LONGEST_TEXT >> 10} KiB: every record would have a copy")


def _unfit(value: Any, default: Any) -> str | None:
    """What is wrong with a parameter's value, by the type of its default. None if it is valid."""
    if value is None or default is None or type(value) is type(default):
        return None
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return None
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return f"expected {words[type(default)]}, found {shown(value)}"


def _choices(grid: Grid, workload: Workload) -> Iterator[Problem]:
    asked: dict[Path, Any] = {(name,): getattr(grid, name) for name in AXES}
    asked |= {("params", name): values for name, values in grid.params.items()}
    for i, point in enumerate(grid.include):
        asked |= {("include", i, name): values for name, values in point.items()}
    for path, values in asked.items():
        axis, valid = str(path[-1]), workload.choices.get(str(path[-1]))
        for value in () if values == AUTO or values is None else values:
            if valid is not None and any(name not in valid for name in _named(axis, value)):
                fact = f"the workload {workload.name} has no {axis} {shown(value)}"
                yield Problem(path, fact, nearest(str(value), map(str, valid)))
            if axis == "routing" and not _ROUTING.fullmatch(str(value)):
                yield Problem(path, f"{shown(value)} is no routing", "natural, balanced, or such as skewed:1.2")


def _named(axis: str, value: Any) -> Sequence[Any]:
    """What of an axis' value must be among the choices: each of several names, and a routing without its exponent."""
    if axis in ("recompute_modules", "cuda_graphs") and isinstance(value, str):
        return [name for name in value.split(",") if name]
    if axis == "routing" and isinstance(value, str):
        return [value.partition(":")[0]]
    return [value]


def _points(grid: Grid, workload: Workload) -> Iterator[Problem]:
    axes = {"model", "nodes", *AXES, *workload.params, *variables_of(grid)}
    for key, points, known in (("include", grid.include, axes), ("exclude", grid.exclude, axes | COLUMNS)):
        for i, point in enumerate(points):
            for name in sorted(set(point) - known):
                yield Problem((key, i, name), f"{name!r} is not an axis", nearest(name, known))
            for value in point.get("model", ()):
                if value not in grid.models:
                    fact = f"{shown(value)} is not among the grid's models"
                    yield Problem((key, i, "model"), fact, nearest(str(value), grid.models))
            if key == "include":
                yield from _kinds(i, point)


def _kinds(i: int, point: Any) -> Iterator[Problem]:
    """The values of an include must be of the kind that the axis takes."""
    for name in sorted(set(point) & {"nodes", *AXES}):
        plain = DEFAULTS.get(name, 1)
        wanted, lowest = type(plain), 0 if plain == 0 else 1
        for value in point[name]:
            if type(value) is not wanted or (wanted is not bool and isinstance(value, int) and value < lowest):
                yield Problem(("include", i, name), f"{shown(value)} is not a value of {name}")


def _nodes(grid: Grid, site: Site) -> Iterator[Problem]:
    asked = {("nodes",): grid.nodes} | {
        ("include", i, "nodes"): p["nodes"] for i, p in enumerate(grid.include) if "nodes" in p
    }
    limits = [part.max_nodes for part in site.parts.values()]
    most = max((limit for limit in limits if limit is not None), default=0)
    for path, counts in asked.items():
        for count in counts:
            if None not in limits and isinstance(count, int) and count > most:
                of = "any max_nodes of the site's node groups" if site.node_groups else "the site's max_nodes"
                yield Problem(path, f"{count} nodes are more than {of} {most}")


def _names(grid: Grid, workload: Workload) -> Iterator[Problem]:
    """One name must not mean two columns."""
    for name in sorted(set(grid.env) & (COLUMNS | set(workload.params))):
        yield Problem(("env", name), f"the variable {name!r} is also the name of an axis or parameter")
    for name in sorted(set(workload.params) & set(COLUMNS | set(DERIVED))):
        yield Problem(("workload",), f"the parameter {name!r} of {workload.name} is also the name of an axis")


_NECESSARY = {"models": {"1B": MODELS["1B"]}, "nodes": 1, "sequence_length": 1}
"""placeholders for missing or wrong values, so that the rest of a grid is still checked"""


def problems_of_the_rest(value: Any) -> list[Problem]:
    """Requests in well-formed keys that the workload cannot meet, in a grid that is wrong elsewhere."""
    asked = value if isinstance(value, dict) else {}
    rest = _NECESSARY | {k: v for k, v in asked.items() if k in Grid.model_fields and k != "tokens_per_gpu"}
    rest["global_batch"] = 1
    try:
        Grid.model_validate(rest)
    except ValidationError as error:
        for item in error.errors():
            rest.pop(str(item["loc"][0]), None)
    if "workload" in asked and "workload" not in rest:
        return []  # what an unknown workload can do is unknown
    grid, _ = check(Grid, _NECESSARY | rest)
    try:
        return [] if grid is None else _problems_with_workload(grid, WORKLOAD.find(grid.workload))
    except SweepError:
        return []  # it cannot be loaded, which is reported elsewhere
