"""Plug-ins by name: workloads, trainers, executors, search strategies, trackers, checks. And their one loader.

Each kind has a table of name -> "module:attribute", so that nothing is imported before it is requested. Other packages
register further ones by entry points.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import bench_workloads
from bench_workloads import trainers
from sweep.errors import Mistake, SweepError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from bench_workloads.trainers.adapter import Adapter
    from sweep.checks.check import Check
    from sweep.contract import Workload

T = TypeVar("T")


def load_object(place: str) -> Any:
    """The object that "module:attribute" names. Raises whatever the import of the module raises, and AttributeError."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[T]):
    """One kind of plug-in."""

    word: str
    path: str
    """where the user names one"""
    table: Mapping[str, str]
    """name -> "module:attribute" of the builtin ones"""
    group: str = ""
    """the entry-point group of further ones; empty: there can be none"""
    of: str = ""
    """"module:attribute" of their class; empty: any object"""
    package: bool = False
    """a package of its name must be installed"""

    def names(self) -> tuple[str, ...]:
        """Every name that ``find`` knows."""
        return tuple(sorted({*self.table, *(point.name for point in self._registered())}))

    def has(self, name: str) -> bool:
        """Whether ``find`` knows this name."""
        return name in self.table or name in self.names()  # those of other packages take longer than a grid to read

    def every(self) -> tuple[T, ...]:
        """All of them. Raises SweepError if one cannot be loaded."""
        return tuple(self.find(name) for name in self.names())

    def find(self, name: str) -> T:
        """The plug-in of this name. Raises SweepError if there is none, or if it cannot be loaded."""
        registered = () if name in self.table else self._registered()
        point = next((point for point in registered if point.name == name), None)
        if name not in self.table and point is None:
            fact = f"unknown {self.word} {name!r}"
            raise SweepError(Mistake(fact, path=self.path, remedy=nearest(str(name), self.names())))
        try:
            loaded = load_object(self.table[name]) if point is None else point.load()
        except Exception as error:  # third-party code: loading a plug-in may raise anything
            fact, remedy = f"the {self.word} {name!r} cannot be loaded: {error}", f"pip install {name}"
            raise SweepError(Mistake(fact, path=self.path, remedy=remedy if self.package else None)) from error
        if self.of and not isinstance(loaded, load_object(self.of)):
            fact = f"the {self.word} {name!r} is a {type(loaded).__name__}, not a {self.of.replace(':', '.')}"
            raise SweepError(Mistake(fact))
        return loaded  # type: ignore[no-any-return]

    def _registered(self) -> tuple[EntryPoint, ...]:
        return _points(self.group, tuple(sys.path)) if self.group else ()


@functools.cache  # it reads every installed package, and a report asks once for each cell
def _points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    from importlib.metadata import entry_points  # a tenth of the time of `sweep --help`

    return tuple(entry_points(group=group))


WORKLOAD: Kind[Workload] = Kind(
    word="workload",
    path="workload",
    table=bench_workloads.WORKLOADS,
    group="sweep.workloads",
    of="sweep.contract:Workload",
)
TRAINER: Kind[Adapter] = Kind(
    word="trainer",
    path="trainer",
    table=trainers.TRAINERS,
    group="sweep.trainers",
    of="bench_workloads.trainers.adapter:Adapter",
)
EXECUTOR: Kind[Any] = Kind(
    word="executor",
    path="--executor",
    table={"slurm": "sweep.executors.slurm:SlurmExecutor", "local": "sweep.executors.local:LocalExecutor"},
)
"""called with (site, sweep_dir)"""
STRATEGY: Kind[Any] = Kind(
    word="strategy",
    path="strategy",
    table={
        "exhaustive": "sweep.search.strategies:Exhaustive",
        "prune": "sweep.search.strategies:Prune",
        "guided": "sweep.search.guided:Guided",
        "playbook": "sweep.search.strategies:OneAxisFirst",
    },
    group="sweep.strategies",
)
"""classes that take no arguments"""
TRACKER: Kind[Any] = Kind(
    word="tracker",
    path="--to",
    table={
        "wandb": "sweep.trackers.wandb:WandbTracker",
        "mlflow": "sweep.trackers.mlflow:MlflowTracker",
    },
    group="sweep.trackers",
    package=True,
)
"""called with (project, sweep_dir)"""
CHECK: Kind[Check] = Kind(word="check", path="check", table={}, group="sweep.checks", of="sweep.checks.check:Check")
"""further ones of `sweep doctor`; its own are in ``sweep.checks``"""
