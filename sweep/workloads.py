"""Workloads by name: the project's own, and those that others register as entry points."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from sweep.contract import Workload
from sweep.errors import Mistake, SweepError
from sweep.validate import nearest

GROUP = "sweep.workloads"
"""the entry-point group; each entry is a ``sweep.contract.Workload``"""


def workload_names() -> tuple[str, ...]:
    """The names that a grid may give."""
    return tuple(sorted({*_own(), *(point.name for point in entry_points(group=GROUP))}))


def find_workload(name: str) -> Workload:
    """The declaration of a workload. Raises SweepError where there is none, or where it cannot be loaded."""
    own = _own()
    try:
        if name in own:
            module, attribute = own[name].split(":")
            found = getattr(importlib.import_module(module), attribute)
        else:
            found = _registered(name)
    except SweepError:
        raise
    except Exception as error:  # others' code: a plug-in that cannot be loaded may raise anything
        raise SweepError(Mistake(f"the workload {name!r} cannot be loaded: {error}")) from error
    if not isinstance(found, Workload):
        raise SweepError(Mistake(f"the workload {name!r} is a {type(found).__name__}, not a sweep.contract.Workload"))
    return found


def _own() -> dict[str, str]:
    # By name, since imports point down only: the workloads are plug-ins of sweep.
    table: dict[str, str] = importlib.import_module("bench_workloads").WORKLOADS
    return table


def _registered(name: str) -> object:
    for point in entry_points(group=GROUP):
        if point.name == name:
            return point.load()
    raise SweepError(Mistake(f"unknown workload {name!r}", path="workload", remedy=nearest(name, workload_names())))
