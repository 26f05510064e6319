"""What a grid asks of a workload and a site that cannot be: mistakes of the user, not rejected candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep.axes import AUTO
from sweep.contract import Workload
from sweep.errors import Mistake, SweepError, nearest
from sweep.grid import AXES, COLUMNS, DERIVED, Grid
from sweep.plugins import find_workload
from sweep.site import Site
from sweep.yaml_lines import Path


def mistakes_of(grid: Grid, site: Site, workload: Workload) -> list[Mistake]:
    """Everything that the grid asks and that no plan can give."""
    return [
        *_parameters(grid, workload),
        *_choices(grid, workload),
        *_points(grid, workload),
        *_nodes(grid, site),
        *_names(grid, workload),
    ]


def further_mistakes(grid: Grid) -> list[Mistake]:
    """What the workload cannot give of a grid that has other mistakes too, so that all are said at once."""
    try:
        workload = find_workload(grid.workload)
    except SweepError:
        return []
    return [*_parameters(grid, workload), *_choices(grid, workload), *_points(grid, workload), *_names(grid, workload)]


def _parameters(grid: Grid, workload: Workload) -> Iterator[Mistake]:
    for name, values in sorted(grid.params.items()):
        path: Path = ("params", name)
        if name not in workload.params:
            fact = f"the workload {workload.name} has no parameter {name!r}"
            yield grid.mistake(fact, path, nearest(name, workload.params))
            continue
        for value in values:
            if (problem := _unfit(value, workload.params[name])) is not None:
                yield grid.mistake(problem, path)


def _unfit(value: Any, default: Any) -> str | None:
    """What is wrong with a parameter's value, judged by its default. None where nothing is."""
    if value is None or default is None or type(value) is type(default):
        return None
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return None
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return f"expected {words[type(default)]}, found {value!r}"


def _choices(grid: Grid, workload: Workload) -> Iterator[Mistake]:
    asked: dict[Path, Any] = {(name,): getattr(grid, name) for name in AXES}
    asked |= {("params", name): values for name, values in grid.params.items()}
    for i, point in enumerate(grid.include):
        asked |= {("include", i, name): values for name, values in point.items()}
    for path, values in asked.items():
        valid = workload.choices.get(str(path[-1]))
        if values == AUTO or valid is None:
            continue
        for value in values:
            if value not in valid:
                fact = f"the workload {workload.name} has no {path[-1]} {value!r}"
                yield grid.mistake(fact, path, nearest(str(value), map(str, valid)))


def _points(grid: Grid, workload: Workload) -> Iterator[Mistake]:
    axes = {"model", "nodes", *AXES, *workload.params, *grid.env}
    for key, points, known in (("include", grid.include, axes), ("exclude", grid.exclude, axes | COLUMNS)):
        for i, point in enumerate(points):
            for name in sorted(set(point) - known):
                yield grid.mistake(f"{name!r} is no axis", (key, i, name), nearest(name, known))
            for value in point.get("model", ()):
                if value not in grid.models:
                    fact = f"{value!r} is not among the grid's models"
                    yield grid.mistake(fact, (key, i, "model"), nearest(str(value), grid.models))
            if key == "include":
                yield from _kinds(grid, i, point)


def _kinds(grid: Grid, i: int, point: Any) -> Iterator[Mistake]:
    """The values of an include must be of the kind that the axis takes."""
    for name in sorted(set(point) & {"nodes", *AXES}):
        wanted = {"recompute": str, "pp_schedule": str, "dtype": str, "compile": bool}.get(name, int)
        lowest = 0 if name == "zero" else 1
        for value in point[name]:
            if type(value) is not wanted or (isinstance(value, int) and value < lowest):
                yield grid.mistake(f"{value!r} is no value of {name}", ("include", i, name))


def _nodes(grid: Grid, site: Site) -> Iterator[Mistake]:
    asked = {("nodes",): grid.nodes} | {
        ("include", i, "nodes"): p["nodes"] for i, p in enumerate(grid.include) if "nodes" in p
    }
    for path, counts in asked.items():
        for count in counts:
            if site.max_nodes is not None and isinstance(count, int) and count > site.max_nodes:
                yield grid.mistake(f"{count} nodes are more than the site's max_nodes {site.max_nodes}", path)


def _names(grid: Grid, workload: Workload) -> Iterator[Mistake]:
    """One name must not mean two columns."""
    for name in sorted(set(grid.env) & (COLUMNS | set(workload.params))):
        yield grid.mistake(f"the variable {name!r} is also the name of an axis or parameter", ("env", name))
    for name in sorted(set(workload.params) & set(COLUMNS | set(DERIVED))):
        yield grid.mistake(f"the parameter {name!r} of {workload.name} is also the name of an axis", ("workload",))
