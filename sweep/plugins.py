"""Plug-ins by name: workloads, trainers, executors, search strategies, trackers. And their one loader.

Each kind has a table of name -> "module:attribute", so that nothing is imported before it is requested. Other packages
register workloads, trainers, strategies and trackers by entry points, and test them with ``sweep.testing``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench_workloads import WORKLOADS
from bench_workloads.trainers import TRAINERS
from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from bench_workloads.trainers.adapter import Adapter
    from sweep.checks.check import Check
    from sweep.contract import Workload

WORKLOAD_GROUP = "sweep.workloads"
"""the entry-point group of further workloads; each entry is a ``sweep.contract.Workload``"""
TRAINER_GROUP = "sweep.trainers"
"""the entry-point group of further trainers; each entry is a ``bench_workloads.trainers.adapter.Adapter``"""
STRATEGY_GROUP = "sweep.strategies"
"""the entry-point group of further search strategies; each entry is a class like those of ``STRATEGIES``"""
TRACKER_GROUP = "sweep.trackers"
"""the entry-point group of further trackers; each entry is a class like those of ``TRACKERS``"""

CHECK_GROUP = "sweep.checks"
"""the entry-point group of further checks of `sweep doctor`; each entry is a ``sweep.checks.check.Check``"""

EXECUTORS: dict[str, str] = {
    "slurm": "sweep.executors.slurm:SlurmExecutor",
    "local": "sweep.executors.local:LocalExecutor",
}
"""name -> "module:attribute", called with (site, sweep_dir)"""

STRATEGIES: dict[str, str] = {
    "exhaustive": "sweep.search.strategies:Exhaustive",
    "prune": "sweep.search.strategies:Prune",
    "guided": "sweep.search.guided:Guided",
    "playbook": "sweep.search.playbook:OneAxisFirst",
}
"""name -> "module:attribute" of a class that takes no arguments"""

TRACKERS: dict[str, str] = {
    "wandb": "sweep.trackers.wandb:WandbTracker",
    "trackio": "sweep.trackers.trackio:TrackioTracker",
    "mlflow": "sweep.trackers.mlflow:MlflowTracker",
}
"""name -> "module:attribute", called with (project, sweep_dir)"""


def load_object(place: str) -> Any:
    """The object that "module:attribute" names. Raises whatever the import of the module raises, and AttributeError."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def workload_names() -> tuple[str, ...]:
    """The workload names that a grid may give."""
    return _names(WORKLOADS, WORKLOAD_GROUP)


def is_workload(name: str) -> bool:
    """Whether a grid may give this workload name."""
    return name in WORKLOADS or name in workload_names()  # the names of other packages take longer than a grid to read


def find_workload(name: str) -> Workload:
    """The declaration of a workload. Raises SweepError if there is none, or if it cannot be loaded."""
    from sweep.contract import Workload  # imported here: `sweep --help` needs the loader, but no workload

    workload: Workload = _find("workload", name, WORKLOADS, path="workload", group=WORKLOAD_GROUP, of=Workload)
    return workload


def trainer_names() -> tuple[str, ...]:
    """Every trainer with an adapter."""
    return _names(TRAINERS, TRAINER_GROUP)


def find_trainer(name: str) -> Adapter:
    """The adapter of a trainer. Raises SweepError if there is none, or if it cannot be loaded."""
    from bench_workloads.trainers.adapter import Adapter

    adapter: Adapter = _find("trainer", name, TRAINERS, path="trainer", group=TRAINER_GROUP, of=Adapter)
    return adapter


def find_executor(name: str) -> Any:
    """The class of an executor. Raises SweepError if there is none, or if it cannot be loaded."""
    return _find("executor", name, EXECUTORS, path="--executor")


def strategy_names() -> tuple[str, ...]:
    """The strategy names that a grid may give."""
    return _names(STRATEGIES, STRATEGY_GROUP)


def is_strategy(name: str) -> bool:
    """Whether a grid may give this strategy name."""
    return name in STRATEGIES or name in strategy_names()


def find_strategy(name: str) -> Any:
    """The class of a search strategy. Raises SweepError if there is none, or if it cannot be loaded."""
    return _find("strategy", name, STRATEGIES, path="strategy", group=STRATEGY_GROUP)


def tracker_names() -> tuple[str, ...]:
    """The trackers that results can be written to."""
    return _names(TRACKERS, TRACKER_GROUP)


def find_tracker(name: str) -> Any:
    """The class of a tracker. Raises SweepError if there is none, or if it cannot be loaded."""
    return _find("tracker", name, TRACKERS, path="--to", group=TRACKER_GROUP, remedy=f"pip install {name}")


def found_checks() -> tuple[Check, ...]:
    """The checks that other packages register. Raises SweepError if one cannot be loaded."""
    from sweep.checks.check import Check

    names = _names({}, CHECK_GROUP)
    return tuple(_find("check", name, {}, path="check", group=CHECK_GROUP, of=Check) for name in names)


def _names(table: Mapping[str, str], group: str) -> tuple[str, ...]:
    return tuple(sorted({*table, *(point.name for point in _registered(group))}))


def _registered(group: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points  # a tenth of the time of `sweep --help`

    return tuple(entry_points(group=group))


def _find(
    kind: str,
    name: str,
    table: Mapping[str, str],
    *,
    path: str,
    group: str = "",
    remedy: str | None = None,
    of: type | None = None,
) -> Any:
    """``path``: where the user names it; ``remedy``: what helps if it is known but cannot be loaded.

    ``of``: its class.
    """
    registered = _registered(group) if group and name not in table else ()
    point = next((point for point in registered if point.name == name), None)
    if name not in table and point is None:
        known = _names(table, group) if group else tuple(table)
        raise SweepError(Mistake(f"unknown {kind} {name!r}", path=path, remedy=nearest(name, known)))
    try:
        loaded = load_object(table[name]) if point is None else point.load()
    except Exception as error:  # third-party code: loading a plug-in may raise anything
        raise SweepError(Mistake(f"the {kind} {name!r} cannot be loaded: {error}", path=path, remedy=remedy)) from error
    if of is not None and not isinstance(loaded, of):
        fact = f"the {kind} {name!r} is a {type(loaded).__name__}, not a {of.__module__}.{of.__qualname__}"
        raise SweepError(Mistake(fact))
    return loaded
