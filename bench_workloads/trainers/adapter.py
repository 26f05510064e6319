"""The interface of trainer adapters. Cheap to import: no trainer, no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bench_workloads.parameters import Parameters
from sweep.contract import RankRun, Run, Scalar, Workload


@dataclass(frozen=True, kw_only=True)
class TrainerParameters(Parameters):
    """Parameters that every adapter has."""

    python: str = ""
    """interpreter of the trainer's environment; empty: sweep's own"""
    prefix: str = ""
    """arguments before the command, such as `apptainer exec --nv image.sif`"""
    start: str = "rank"
    """rank: one process per rank with torchrun's variables; node: one torchrun per node"""
    workdir: str = ""
    """where the command starts; empty: a directory of the attempt, or the one that the trainer's guide names"""
    arguments: str = ""
    """further arguments of the trainer's command line, split as by a shell"""


@dataclass(frozen=True, kw_only=True)
class CanSave(TrainerParameters):
    """Those of trainers whose own checkpoints are measured."""

    checkpoint: str = "none"
    """after the timed steps the trainer writes one checkpoint to the site's `checkpoint_dir`, by its own switches; then
    it is removed: `sync`, `async` and, in torchtitan, `async_pinned` are its own modes"""
    checkpoint_timeout_s: float = 600.0
    """longest time without a line of the trainer until its checkpoint is whole"""


PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@=-]{0,99}")
"""of a file: it is in the directory that it is written to, and no option"""
SHARED_CHOICES: dict[str, tuple[Scalar, ...]] = {"start": ("rank", "node")}


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a run is started: the trainer's own configuration and command."""

    program: tuple[str, ...]
    """arguments after the interpreter: ("-m", "package.train", …) or ("train.py", …); without ``python`` all"""
    files: Mapping[str, str] = field(default_factory=dict)
    """name -> text, written before the start to the directory passed to ``Adapter.configure``"""
    env: Mapping[str, str] = field(default_factory=dict)
    """environment variables, in addition to those of torchrun"""
    python: bool = True
    """False: ``program`` is the whole command, started unmodified"""
    workdir: str = ""
    """working directory, unless the parameter sets it; ".": of the launch; empty: the directory of its files"""

    def written(self) -> Mapping[str, str]:
        """The files. Raises ValueError where one has no plain name, or a text that no file can hold."""
        for name, text in self.files.items():
            if not PLAIN_NAME.fullmatch(name):
                raise ValueError(f"{name[:80]!r} is no plain name of a file")
            text.encode()
        return self.files


@dataclass(frozen=True, kw_only=True)
class ParsedLine:
    """What was parsed from one line of output."""

    iteration: int | None = None
    """the iteration that ended with this line, by the trainer's own count"""
    values: Mapping[str, float] = field(default_factory=dict)
    """names of ``bench_workloads.trainers.driver.reading.NAMES``, in their units; without an iteration, of the
    last one. Memory counts also where none was reported"""
    effective: Mapping[str, Scalar] = field(default_factory=dict)
    """layout, batch and parameters as the trainer reports them, under the names of a run's fields"""
    begun: bool = False
    """the first iteration begins"""
    checkpoint: Mapping[str, float] = field(default_factory=dict)
    """what the line says of a checkpoint: `begun`, `whole`; `stall_s` or `stall_ms`, for which training waited"""


class Reader(Protocol):
    """Reads one run's output, a whole line at a time: no colours, no line end. Never raises."""

    def read(self, line: str) -> list[ParsedLine]:
        """What was parsed from the line; empty for most lines."""


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One trainer."""

    workload: Workload
    configure: Callable[[Run, str, int], Launch]
    """(run, directory for its files, iterations to train) -> how to start it. Raises ValueError."""
    reader: Callable[[Run], Reader]
    package: str = ""
    """the distribution whose version is recorded"""
    convention: str = ""
    """its FLOPs convention: a name of ``sweep.physics.flops.CONVENTIONS``; empty: it prints no TFLOPS, or any"""
    hints: Mapping[str, str] = field(default_factory=dict)
    """regular expression over a line of output -> the usual cause of such a failure"""
    expected: Callable[[Run], Mapping[str, str]] = lambda _: {}
    """what the user's own patterns should find: our name -> the name in the grid; each is noted if no line has it"""
    iteration: Callable[[Run], str] = lambda _: ""
    """the user's own expression of an iteration, for the message where no line has it"""


RunKind = TypeVar("RunKind", bound=Run)


def from_here(run: RunKind, settings: Mapping[str, Any], here: Path | None = None) -> RunKind:
    """The run with its trainer's checkout by its absolute path: the trainer starts in another directory.

    ``here``: what a relative path is relative to, by default the working directory.
    """
    if "root" not in settings:
        return run
    return replace(run, params={**run.params, "root": str((here or Path.cwd()) / str(settings["root"]))})


def saving(run: Run) -> tuple[str, str, int]:
    """(kind, directory, after how many iterations) of a run's one checkpoint; `none` in an exported command.

    After all timed iterations, and one more: the first's length is often unknown.
    """
    directory = run.place.checkpoint_dir if isinstance(run, RankRun) else ""
    kind = str(run.params.get("checkpoint")) if directory else "none"
    return kind, directory, run.warmup_iterations + run.iterations + 1


Kind = TypeVar("Kind", str, int, float, bool)


def param(workload: Workload, run: Run, name: str, kind: type[Kind]) -> Kind:
    """A run's parameter, or the workload's default for it."""
    value: Any = run.params.get(name, workload.params[name])
    return kind(value)
