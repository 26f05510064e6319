"""The runs of a plan as arrays, made once, for strategies to compute with."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.contract import FURTHER
from sweep.physics import memory
from sweep.physics.columns import equals, read
from sweep.physics.groups import PACKED, PLACEMENT
from sweep.physics.hardware import Gpu
from sweep.physics.machine import Machine
from sweep.physics.prediction import Layouts, by_size, describe, describe_unknown
from sweep.physics.profiles import PROFILES, SIZED_TRAINER, MemoryProfile, profile_of
from sweep.physics.step_time import PARTS
from sweep.physics.trainers import behaviour_of
from sweep.physics.unknown_trainer import NAMES
from sweep.planning.runs import PlannedRun
from sweep.search.gaussian import Floats, Ints
from sweep.search.layout_kernel import LayoutKernel, axes_of
from sweep.search.memory_model import KNOWN_TRAINER, UNKNOWN_TRAINER, PredictedPeaks, predicted_peaks
from sweep.search.scales import USUAL, Scales

Bools = npt.NDArray[np.bool_]
UNKNOWN_GPU = Gpu(name="unknown")


@dataclass(frozen=True)
class Candidates:
    """Runs as columns, in the plan's order. Arrays have one entry per run unless stated otherwise."""

    ids: tuple[str, ...]
    columns: Mapping[str, Any]
    """layout, shape, ``nodes``, ``sequence_length``, ``dtype``, ``gpus_per_node``"""
    kinds: list[Any]
    """what must also be equal for two runs to be comparable: shape, workload, parameters, environment"""
    workloads: tuple[str, ...]
    gpu: Gpu
    cells: Ints
    """number of the run's (model, nodes)"""
    cell_names: tuple[tuple[str, int], ...]
    """(model, nodes) by number"""
    nodes: Ints
    repeats: Ints
    expected_s: Floats
    """each run's expected duration"""
    planned: bool = False
    """a plan accepted them: its workload's rules decide which micro-batches a pipeline needs, not a general rule"""
    by_size: bool = False
    """small ones are to predict large ones (``sweep.physics.prediction.by_size``)"""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Ints) -> Candidates:
        """Some of them."""
        found = {name: getattr(self, name)[rows] for name in ("cells", "nodes", "repeats", "expected_s")}
        for name in ("ids", "kinds", "workloads"):
            of_all = getattr(self, name)
            found[name] = type(of_all)(of_all[row] for row in rows.tolist())
        return replace(self, columns=self._some(rows), **found)

    @cached_property
    def index(self) -> dict[str, int]:
        """run_id -> index."""
        return {run_id: i for i, run_id in enumerate(self.ids)}

    @cached_property
    def layouts(self) -> Layouts:
        """The runs as the step-time model describes them; all the same if the runs have no model (collectives)."""
        if "hidden_size" not in self.columns or not len(self):
            return Layouts.similar(len(self))
        places, found = [], []
        others = np.flatnonzero(~self._has_profile)
        further = len(NAMES) if len(others) else 0
        for mine, profile in self._profiles:
            places.append(mine)
            found.append(describe(self._some(mine), self.gpu, profile).padded(0, further))
        if len(others):
            places.append(others)
            found.append(describe_unknown(self._some(others), self.gpu).padded(len(PARTS), 0))
        joined = Layouts.joined(found).take(np.argsort(np.concatenate(places)))
        if not self.by_size:
            return joined
        blocking = np.zeros(len(self), dtype=bool)
        for rows, profile in self._profiles:
            blocking[rows] = behaviour_of(profile.name).blocking_sends
        return by_size(joined, Machine(gpu=self.gpu).within_links(self.columns), self.models, blocking)

    @property
    def scales(self) -> Scales:
        """By how much step times are expected to differ from the layouts' physics."""
        known = self.by_size and len(self) and self._has_profile.all()
        return Scales.small(self.kernel.variances) if known else USUAL

    @cached_property
    def sizes(self) -> Ints:
        """A number per number of nodes."""
        return np.unique(self.nodes, return_inverse=True)[1].ravel()

    def _some(self, rows: Ints) -> dict[str, Any]:
        return {name: value if np.ndim(value) == 0 else value[rows] for name, value in self.columns.items()}

    @cached_property
    def log_tokens_per_gpu(self) -> Floats:
        """Logarithm of the tokens of a step per GPU."""
        replicas = read(self.columns, "dp") * read(self.columns, "micro_batch_size") * read(self.columns, "grad_accum")
        tokens = replicas * read(self.columns, "sequence_length")
        found: Floats = np.log(tokens / (self.nodes * read(self.columns, "gpus_per_node")))
        return found

    @cached_property
    def features(self) -> Floats:
        """(runs, features): a run's position among the others, in doublings; categories as steps of two."""
        widths = ["tp", "pp", "micro_batch_size", "grad_accum", "nodes", "cp", "ep"]
        widths += ["hidden_size"] * ("hidden_size" in self.columns)
        parts = [np.log2(read(self.columns, name)) for name in widths]
        parts += [read(self.columns, "zero"), 2.0 * (read(self.columns, "tp") > read(self.columns, "gpus_per_node"))]
        kinds = np.asarray(self.columns["recompute"])
        steps = np.where(kinds == "full", 2.0, np.where(kinds == "selective", 1.0, 0.0))
        parts += [2.0 * (read(self.columns, "pp") == 1), steps]
        return np.stack([np.broadcast_to(part, len(self)) for part in parts], axis=1).astype(np.float64)

    @cached_property
    def duplicates(self) -> Ints:
        """A number per configuration: equal for its repeats."""
        names = sorted(self.columns)
        rows = zip(
            self.kinds, *(np.broadcast_to(self.columns[name], len(self)).tolist() for name in names), strict=True
        )
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(row, len(numbers)) for row in rows], dtype=np.int64)

    @cached_property
    def measured_again(self) -> Bools:
        """The repeats that not every configuration of the cell has: those of top configurations, planned once nothing
        else was left.
        """
        most = np.zeros(len(self), dtype=np.int64)
        np.maximum.at(most, self.duplicates, self.repeats)
        of_all = np.full(len(self.cell_names), np.inf)
        np.minimum.at(of_all, self.cells, most[self.duplicates])
        found: Bools = self.repeats > of_all[self.cells]
        return found

    @cached_property
    def needs(self) -> Needs:
        """Each run's memory needs, comparable without a model."""
        bounded: Bools = np.zeros(len(self), dtype=bool)
        for rows, profile in self._profiles:
            bounded[rows] = not profile.torch_pipeline
        return needs(self.columns, self.kinds, bounded)

    @cached_property
    def impossible(self) -> Bools:
        """Runs that the static rules reject: too few micro-batches for the stages, or over the memory.

        Memory is checked only for trainers known by name, since the memory use of others is unknown.
        """
        too_few = (not self.planned) & (read(self.columns, "grad_accum") < read(self.columns, "pp") - 1)
        found: Bools = np.broadcast_to(too_few, len(self)) | (self._has_profile & (self.memory_use > 1))
        return found

    @cached_property
    def memory_use(self) -> Floats:
        """Predicted peak over what the GPU and the profile's margin allow; 0 if one of them is unknown."""
        use = np.zeros(len(self))
        for rows, profile in self._profiles:
            fit = memory.fits(self._some(rows), self.gpu, profile)
            if fit.limit_bytes is not None:
                use[rows] = fit.needed_bytes / fit.limit_bytes
        return use

    @property
    def memory_limit_bytes(self) -> float:
        """GPU memory available to torch's tensors; infinite if unknown."""
        return memory.usable_bytes(self.gpu) or float("inf")

    @cached_property
    def models(self) -> Ints:
        """A number per model shape."""
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(kind[1], len(numbers)) for kind in self.kinds], dtype=np.int64)

    @cached_property
    def kernel(self) -> LayoutKernel:
        """Covariances between layouts."""
        return LayoutKernel(axes_of(self.columns, self.kinds), len(self))

    @cached_property
    def peaks(self) -> PredictedPeaks | None:
        """Predicted peaks with their uncertainty; None if the GPU's memory or the models are unknown.

        A trainer without a profile is taken for Megatron's. Its spreads are wide, as of a recipe that keeps all.
        """
        if "hidden_size" not in self.columns or not np.isfinite(self.memory_limit_bytes):
            return None
        log_use, shares = predicted_peaks(self.columns, PROFILES[SIZED_TRAINER], self.memory_limit_bytes)
        spreads = np.full(len(self), UNKNOWN_TRAINER)
        for rows, profile in self._profiles:
            columns = self._some(rows)
            log_use[rows], shares[rows] = predicted_peaks(columns, profile, self.memory_limit_bytes)
            spreads[rows] = KNOWN_TRAINER if np.isfinite(profile.margin) else UNKNOWN_TRAINER
        return PredictedPeaks(log_use, shares, spreads)

    @cached_property
    def _profiles(self) -> list[tuple[Ints, MemoryProfile]]:
        """The runs by memory profile; runs without a known profile are in no group."""
        compiled = np.broadcast_to(np.asarray(self.columns.get("compile", False), dtype=bool), len(self)).tolist()
        groups: dict[tuple[str, str, bool], list[int]] = {}
        for i, (kind, whole) in enumerate(zip(self.kinds, compiled, strict=True)):
            groups.setdefault((kind[0], kind[2], whole), []).append(i)
        found = []
        for (workload, params, whole), rows in groups.items():
            profile = profile_of(workload, json.loads(params), compiled=whole)
            if profile is not None:
                found.append((np.array(rows, dtype=np.int64), profile))
        return found

    @property
    def _has_profile(self) -> Bools:
        found: Bools = np.zeros(len(self), dtype=bool)
        for rows, _ in self._profiles:
            found[rows] = True
        return found


def from_plan(runs: Sequence[PlannedRun], gpu: Gpu = UNKNOWN_GPU) -> Candidates:
    """The candidates of a plan's runs."""
    first: dict[str, str] = {}
    for run in runs:
        first.setdefault(run.configuration, run.run_json)  # its repeats differ in nothing else
    numbers = {configuration: i for i, configuration in enumerate(first)}
    # One JSON text: keys that recur in thousands of runs are created once.
    found = from_configurations(list(first), json.loads(f"[{','.join(first.values())}]"), gpu)
    return replace(
        found.take(np.array([numbers[run.configuration] for run in runs], dtype=np.int64)),
        ids=tuple(run.run_id for run in runs),
        planned=True,
        repeats=np.array([run.repeat for run in runs], dtype=np.int64),
        expected_s=np.array([run.expected_s for run in runs], dtype=np.float64),
    )


def from_configurations(ids: Sequence[str], runs: Sequence[Mapping[str, Any]], gpu: Gpu) -> Candidates:
    """The candidates of runs given as the values of ``Run.canonical_json``."""
    columns = {name: np.array([run[name] for run in runs]) for name in ("nodes", "gpus_per_node", "sequence_length")}
    columns |= {name: np.array([run[name] for run in runs]) for name in ("dtype", "compile")}
    columns |= _columns([run["layout"] for run in runs]) | _columns([run["shape"] for run in runs])
    if any(PLACEMENT in run["env"] for run in runs):
        columns[PLACEMENT] = np.array([run["env"].get(PLACEMENT, PACKED) for run in runs])
    names = [(str(run["model"]), int(run["nodes"])) for run in runs]
    numbers = {cell: i for i, cell in enumerate(dict.fromkeys(names))}
    return Candidates(
        ids=tuple(ids),
        columns=columns,
        kinds=_kinds(runs),
        workloads=tuple(str(run["workload"]) for run in runs),
        gpu=gpu,
        cells=np.array([numbers[cell] for cell in names], dtype=np.int64),
        cell_names=tuple(numbers),
        nodes=columns["nodes"].astype(np.int64),
        repeats=np.array([run["repeat"] for run in runs], dtype=np.int64),
        expected_s=np.ones(len(runs)),
    )


def joined_candidates(first: Candidates, second: Candidates) -> Candidates:
    """Both, the first's on its kind of GPU before the second's: runs of a grid and those measured earlier."""
    names = dict.fromkeys([*first.columns, *second.columns])
    cells = {name: i for i, name in enumerate(dict.fromkeys([*first.cell_names, *second.cell_names]))}

    def column(one: Candidates, name: str) -> Any:
        return np.broadcast_to(np.asarray(one.columns.get(name, FURTHER.get(name, 0))), len(one))

    return Candidates(
        ids=first.ids + second.ids,
        columns={name: np.concatenate([column(first, name), column(second, name)]) for name in names},
        kinds=first.kinds + second.kinds,
        workloads=first.workloads + second.workloads,
        gpu=first.gpu,
        cells=np.array([cells[one.cell_names[cell]] for one in (first, second) for cell in one.cells], dtype=np.int64),
        cell_names=tuple(cells),
        nodes=np.concatenate([first.nodes, second.nodes]),
        repeats=np.concatenate([first.repeats, second.repeats]),
        expected_s=np.concatenate([first.expected_s, second.expected_s]),
    )


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An array per key; of a row that lacks it, with its default or 0."""
    names = dict.fromkeys(name for keys in dict.fromkeys(map(tuple, rows)) for name in keys)
    first = [name for name in FURTHER if name in names]
    plain = {name: FURTHER.get(name, 0) for name in (*first, *names)}
    return {name: np.array([row.get(name, value) for row in rows]) for name, value in plain.items()}


def _kinds(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Each run's workload, and shape, parameters and environment as sorted JSON: created once for equal ones."""
    texts: dict[str, str] = {}

    def text(value: Any) -> str:
        key = repr(value)
        if key not in texts:
            texts[key] = json.dumps(value, sort_keys=True)
        return texts[key]

    return [(str(run["workload"]), text(run["shape"]), text(run["params"]), text(run["env"])) for run in runs]


_SAME = (
    *("sequence_length", "pp", "cp", "ep", "gpus_per_node", "recompute", "pp_schedule", "dtype", "compile"),
    *FURTHER,
)
"""equal within a class, in addition to the model's shape and the workload's parameters"""


@dataclass(frozen=True)
class Needs:
    """The memory needs of candidates, comparable within a class."""

    classes: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float64]
    """(candidates, needs); a larger number is a greater need"""

    def dominating(self, index: int) -> Bools:
        """The candidates with at least the needs of this one in every component, itself included."""
        mine = self._members[self.classes[index]]
        mask: Bools = np.zeros(len(self.classes), dtype=bool)
        mask[mine[(self.vectors[mine] >= self.vectors[index]).all(axis=1)]] = True
        return mask

    @cached_property
    def _members(self) -> list[npt.NDArray[np.int64]]:
        """The candidates of each class, by its number."""
        order = np.argsort(self.classes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.classes))[:-1])


def needs(columns: Mapping[str, Any], kinds: list[Hashable], bounded: Bools) -> Needs:
    """The needs of candidates. ``kinds``: per candidate what else must be equal (shape, parameters, environment).
    ``bounded``: known not to be built on FSDP and torch's pipelines, so that 1F1B allocates only the
    micro-batches in flight, and a step of one micro-batch never needs more than one of several.

    In the vector, each larger where more memory is needed with all else equal: the micro-batch; fewer tensor ranks;
    micro-batches in flight (1F1B holds at most pp of them, and gradients persist from the second); the samples of a
    whole step on a rank, of which other schedules hold more, or all; a lower ZeRO stage; fewer ranks to shard over,
    where anything is sharded.
    """
    size = len(kinds)
    same = [np.broadcast_to(np.asarray(columns.get(name, 0)), size).tolist() for name in _SAME]
    numbers: dict[Hashable, int] = {}
    # A run of one replica has no buckets to reduce gradients in: it may need less than one of two.
    alone = np.broadcast_to(read(columns, "dp") * read(columns, "cp") == 1, size).tolist()
    # FSDP reduces at once in a step of one micro-batch: it may need more than one of two.
    at_once = (read(columns, "zero") > 0) & (read(columns, "grad_accum") == 1) & ~bounded
    # One tensor rank may compute the loss in chunks, of fewer bytes than the half of the logits that one of two has.
    whole_loss = (read(columns, "tp") == 1) & ~bounded
    either = [np.broadcast_to(flag, size).tolist() for flag in (at_once, whole_loss)]
    keys = zip(kinds, alone, *either, *same, strict=True)
    classes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    zero, pp = read(columns, "zero"), read(columns, "pp")
    shards = np.where(zero > 0, read(columns, "dp"), 1.0)  # cp is equal within a class
    flight = np.minimum(read(columns, "grad_accum"), np.maximum(pp, 2))
    plain = (pp == 1) | (equals(columns, "pp_schedule", "1f1b") & bounded)
    samples = np.where(plain, 0.0, read(columns, "micro_batch_size") * read(columns, "grad_accum"))
    vector = [read(columns, "micro_batch_size"), -read(columns, "tp"), flight, samples, -zero, -shards]
    stacked = [np.broadcast_to(np.asarray(part, dtype=np.float64), size) for part in vector]
    return Needs(classes, np.stack(stacked, axis=1))
