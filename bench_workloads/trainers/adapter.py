"""The seam of trainers: what an adapter says of one. Cheap to import: no trainer, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sweep.contract import Run, Scalar, Workload

SHARED_PARAMS: dict[str, Scalar] = {
    "python": "",
    "prefix": "",
    "start": "rank",
    "workdir": "",
    "arguments": "",
}
"""Parameters that every adapter has. ``python``: the interpreter of the trainer's own environment (empty: sweep's).
``prefix``: words before the command, such as a container's. ``start``: rank, one process per rank with torchrun's
variables; or node, one torchrun per node. ``workdir``: where it starts (empty: a directory of the attempt).
``arguments``: further words of the trainer's command line, as a shell would split them."""

SHARED_CHOICES: dict[str, tuple[Scalar, ...]] = {"start": ("rank", "node")}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a run is started: the trainer's own configuration and command."""

    program: tuple[str, ...]
    """words after the interpreter: ("-m", "package.train", …) or ("train.py", …); without ``python`` all of them"""
    files: Mapping[str, str] = field(default_factory=dict)
    """name -> text, written before the start to the directory that ``Adapter.configure`` was given"""
    env: Mapping[str, str] = field(default_factory=dict)
    """environment variables, beside those of torchrun"""
    python: bool = True
    """False: ``program`` is the whole command, which is started as it is"""
    workdir: str = ""
    """where it is started, unless the parameter says; empty: in the directory of its files"""


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one line of output told."""

    iteration: int | None = None
    """the iteration that ended with this line, by the trainer's own count"""
    values: Mapping[str, float] = field(default_factory=dict)
    """names of ``bench_workloads.trainers.driver.reading.NAMES``, in their units; without an iteration, of the one told
    last. Memory counts where none was told too"""
    effective: Mapping[str, Scalar] = field(default_factory=dict)
    """layout, batch and parameters as the trainer states them, under the names that a run has for them"""
    begun: bool = False
    """the first iteration begins"""


class Reader(Protocol):
    """Reads one run's output, a whole line at a time: no colours, no line end. Never raises."""

    def read(self, line: str) -> list[Said]:
        """What the line tells; empty for most lines."""


@dataclass(frozen=True, kw_only=True)
class Hint:
    """What a trainer's failure usually means."""

    pattern: str
    """regular expression over a line of output"""
    text: str


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One trainer."""

    workload: Workload
    versions: str
    """what it was written against"""
    configure: Callable[[Run, str, int], Launch]
    """(run, directory for its files, iterations to train) -> how it is started. Raises ValueError."""
    reader: Callable[[Run], Reader]
    package: str = ""
    """the distribution whose version is recorded"""
    convention: str = ""
    """how it counts FLOPs: a name of ``sweep.physics.flops.CONVENTIONS``; empty: it prints no TFLOPS, or any"""
    hints: tuple[Hint, ...] = ()

    @property
    def name(self) -> str:
        """The name that a grid gives as its workload."""
        return self.workload.name


RunKind = TypeVar("RunKind", bound=Run)


def from_here(run: RunKind, settings: Mapping[str, Any]) -> RunKind:
    """The run with its trainer's checkout by its whole path: it is named from here, the trainer starts elsewhere."""
    if "root" not in settings:
        return run
    return replace(run, params={**run.params, "root": str(Path(settings["root"]).absolute())})


Kind = TypeVar("Kind", str, int, float, bool)


def param(workload: Workload, run: Run, name: str, kind: type[Kind]) -> Kind:
    """A run's parameter, or the workload's default for it."""
    value: Any = run.params.get(name, workload.params[name])
    return kind(value)
