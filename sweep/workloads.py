"""The seam of workloads: what may be measured, by name. Ours, and those that others register by entry point."""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import entry_points

from sweep.contract import Workload
from sweep.errors import Mistake, SweepError

ENTRY_POINT_GROUP = "sweep.workloads"


def workload_names() -> list[str]:
    """All names that a grid's `workload` may have."""
    return sorted(_references())


@cache
def workload_named(name: str) -> Workload:
    """The declaration of a workload. Raises SweepError for an unknown name."""
    references = _references()
    if name not in references:
        raise SweepError(
            Mistake(f"unknown workload {name!r}", path="workload", remedy=f"one of: {', '.join(sorted(references))}")
        )
    module, attribute = references[name].split(":")
    declared = getattr(importlib.import_module(module), attribute)
    if not isinstance(declared, Workload):
        raise SweepError(
            Mistake(f"workload {name!r}: {references[name]} is no sweep.contract.Workload", path="workload")
        )
    return declared


@cache
def _references() -> dict[str, str]:
    from bench_workloads import WORKLOADS

    registered = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return {**registered, **WORKLOADS}
